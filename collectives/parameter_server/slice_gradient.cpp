#include "collectives/parameter_server/slice_gradient.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace mayfly::parameter_server {

// One pass over `mean` per slice and not one sum per element: the compiler makes vectors of that.
void mean_of(std::span<const SliceGradient> slices, std::size_t first, std::span<float> mean) {
  ENSURE(!slices.empty(), "a mean of at least one gradient");
  std::uint32_t microbatches = 0;
  for (const SliceGradient& slice : slices) {
    microbatches += slice.microbatches;
  }
  const float scale = 1.0F / static_cast<float>(microbatches);
  const std::span<const float> only = slices[0].sum.subspan(first, mean.size());
  if (slices.size() == 1) {
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] = only[i] * scale;
    }
    return;
  }
  std::copy(only.begin(), only.end(), mean.begin());
  for (const SliceGradient& slice : slices.subspan(1)) {
    const std::span<const float> part = slice.sum.subspan(first, mean.size());
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] += part[i];
    }
  }
  for (float& value : mean) {
    value *= scale;
  }
}

}  // namespace mayfly::parameter_server
