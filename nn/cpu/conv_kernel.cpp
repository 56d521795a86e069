#include "nn/cpu/conv_kernel.hpp"

#include <fmt/format.h>

#include <atomic>
#include <oneapi/dnnl/dnnl.hpp>

namespace mayfly::nn::cpu {
namespace {

enum class Choice { kAuto, kDirect, kWinograd };

std::atomic<Choice> g_choice = Choice::kAuto;

// To be raised whenever the table or a kernel's arithmetic changes, so that workers of different
// releases detect that their bits differ.
constexpr const char* kTableVersion = "2";

/// Up to this number of channels Winograd was measured to be faster: whole steps of ResNet-18 at
/// 224 with AVX-512 ran at 16.2 images per CPU-second without it, 20.6 with it up to 128 channels,
/// 23.1 up to 512.
constexpr int kWinogradChannelsMax = 512;
constexpr int kWinogradSizeMin = 4;

bool winograd_can(Isa isa, const ConvSpec& spec) {
  const int block = isa == Isa::kAvx512 ? 16 : 8;
  return spec.kernel == 3 && spec.stride == 1 && spec.padding == 1 &&
         spec.in_channels % block == 0 && spec.out_channels % block == 0;
}

bool winograd_wins(const ConvSpec& spec) {
  return spec.in_channels <= kWinogradChannelsMax && spec.out_channels <= kWinogradChannelsMax &&
         spec.input_size >= kWinogradSizeMin;
}

}  // namespace

const char* name_of(ConvKernel kernel) {
  return kernel == ConvKernel::kWinograd ? "winograd" : "direct";
}

Result<void> select_conv_kernels(const std::string& choice) {
  if (choice == "auto") {
    g_choice = Choice::kAuto;
  } else if (choice == "direct") {
    g_choice = Choice::kDirect;
  } else if (choice == "winograd") {
    g_choice = Choice::kWinograd;
  } else {
    return Error{Errc::kInvalidInput,
                 "unknown convolution kernels \"" + choice + "\" (auto, direct or winograd)"};
  }
  return {};
}

ConvKernel kernel_for(Isa isa, const ConvSpec& spec) {
  const Choice choice = g_choice;
  const bool winograd = choice != Choice::kDirect && winograd_can(isa, spec) &&
                        (choice == Choice::kWinograd || winograd_wins(spec));
  return winograd ? ConvKernel::kWinograd : ConvKernel::kDirect;
}

std::vector<KernelChoice> kernel_choices(Isa isa, const Model& model) {
  std::vector<KernelChoice> choices;
  for (const ConvSpec* spec : convolutions_of(model)) {
    choices.push_back({model.parameters[spec->weight].name, *spec, kernel_for(isa, *spec)});
  }
  return choices;
}

std::string conv_kernels_fingerprint() {
  const Choice choice = g_choice;
  const char* const word = choice == Choice::kAuto     ? "auto"
                           : choice == Choice::kDirect ? "direct"
                                                       : "winograd";
  const dnnl::version_t& library = *dnnl::version();  // the library that was loaded
  return fmt::format("{}-{}-onednn-{}.{}.{}", word, kTableVersion, library.major, library.minor,
                     library.patch);
}

}  // namespace mayfly::nn::cpu
