#include "nn/cuda/staging.hpp"

#include <cstring>
#include <utility>

#include "nn/cuda/kernels/kernels.hpp"
#include "nn/step_engine.hpp"

namespace mayfly::nn::cuda {

Result<Staging> make_staging(const Model& model, std::uint32_t microbatch) {
  Staging staging;
  const std::pair<PinnedMemory*, std::size_t> parts[] = {
      {&staging.images, microbatch * image_floats(model) * sizeof(float)},
      {&staging.draws, microbatch * sizeof(SampleDraw)},
      {&staging.labels, microbatch * sizeof(std::uint16_t)},
      {&staging.loss_input, sizeof(LossInput)},
      {&staging.loss_output, sizeof(LossOutput)},
      {&staging.statistics, model.statistic_count * sizeof(float)}};
  for (const auto& [part, bytes] : parts) {
    Result<PinnedMemory> pinned = make_pinned_memory(bytes);
    if (!pinned.ok()) {
      return std::move(pinned).error();
    }
    *part = std::move(pinned).value();
    std::memset(part->get(), 0, bytes);
  }
  return staging;
}

}  // namespace mayfly::nn::cuda
