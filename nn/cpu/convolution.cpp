#include "nn/cpu/convolution.hpp"

#include "nn/cpu/direct_conv.hpp"
#include "nn/cpu/winograd_conv.hpp"

namespace mayfly::nn::cpu {

std::unique_ptr<Convolution> make_convolution(const ConvContext& context, const ConvSpec& spec,
                                              const ConvUse& use, ConvKernel kernel,
                                              MemoryPlan& plan) {
  if (kernel == ConvKernel::kWinograd) {
    return std::make_unique<WinogradConv>(context, spec, use, plan);
  }
  return std::make_unique<DirectConv>(context, spec, use, plan);
}

}  // namespace mayfly::nn::cpu
