#include "engine/training/step_means.hpp"

#include <array>
#include <limits>

namespace mayfly::engine {
namespace {

/// Updating fewer elements than this takes less time than waking up another thread.
constexpr std::size_t kElementsPerThread = std::size_t{256} << 10;

}  // namespace

void StepMeans::for_all_blocks(Computer& computer, const BlocksFunction& function) const {
  const std::size_t blocks = layout_.blocks().block_count();
  if (layout_.element_count() < 2 * kElementsPerThread || computer.thread_count() == 1) {
    function(0, blocks);
  } else {
    computer.run_parts([&](std::uint32_t part, std::uint32_t parts) {
      function(blocks * part / parts, blocks * (part + 1) / parts);
    });
  }
}

float StepMeans::loss(const GradientBuckets& reduced,
                      std::span<const std::int32_t> exponents) const {
  if (!reduced.fits(0, exponents)) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  std::array<float, ReductionLayout::kLossElements> loss{};
  reduced.mean(0, exponents, scale_, loss);
  return loss[0];
}

ObservedStep StepMeans::blank() const {
  ObservedStep blank;
  blank.means = AlignedBuffer<float>(layout_.element_count());
  return blank;
}

void StepMeans::observe(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
                        Computer& computer, ObservedStep& observed) const {
  if (observed.means.size() == 0) {
    observed.means = blank().means;
  }
  for_all_blocks(computer, [&](std::size_t first, std::size_t last) {
    for (std::size_t b = first; b < last; ++b) {
      reduced.mean(
          b, exponents, scale_,
          observed.means.span().subspan(layout_.blocks().offset(b), layout_.blocks().size(b)));
    }
  });
  observed.next_exponents = reduced.next_exponents(observed.step, exponents);
}

}  // namespace mayfly::engine
