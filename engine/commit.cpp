#include "engine/commit.hpp"

#include <array>

#include "nn/optimizer.hpp"

namespace mayfly::engine {
namespace {

/// Fewer elements than this are updated sooner than another thread has woken up.
constexpr std::size_t kElementsPerThread = std::size_t{256} << 10;

}  // namespace

// Block by block, so that a mean is still in the nearest cache when the optimizer reads it. How an
// array is cut does not change what sgd_update() computes.
void Committer::update(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
                       Range blocks, nn::ModelState& state) const {
  const nn::SgdOptions sgd{static_cast<float>(job_.config.momentum),
                           static_cast<float>(job_.config.weight_decay)};
  const auto rate =
      static_cast<float>(nn::learning_rate_at(job_.schedule, value(next(state.committed))));
  const float scale = 1.0F / static_cast<float>(job_.microbatches);
  alignas(64) std::array<float, collectives::kBlockElements> memory;
  for (std::size_t b = blocks.first; b < blocks.last; ++b) {
    const std::size_t first = layout_.blocks().offset(b);
    const std::span<float> mean = std::span(memory).first(layout_.blocks().size(b));
    reduced.mean(b, exponents, scale, mean);
    if (first >= layout_.parameters_offset()) {
      const std::size_t at = first - layout_.parameters_offset();
      nn::sgd_update(sgd, rate, mean, state.parameters.span().subspan(at, mean.size()),
                     state.momentum.span().subspan(at, mean.size()));
    } else if (first >= layout_.statistics_offset()) {
      const std::size_t at = first - layout_.statistics_offset();
      nn::update_running_statistics(kStatisticsRate, mean,
                                    state.statistics.span().subspan(at, mean.size()));
    }
  }
}

float Committer::commit(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
                        ComputePool& pool, nn::ModelState& state) const {
  const std::size_t blocks = layout_.blocks().block_count();
  if (layout_.element_count() < 2 * kElementsPerThread || pool.thread_count() == 1) {
    update(reduced, exponents, {0, blocks}, state);
  } else {
    pool.run_parts([&](std::uint32_t part, std::uint32_t parts) {
      update(reduced, exponents, {blocks * part / parts, blocks * (part + 1) / parts}, state);
    });
  }
  std::array<float, ReductionLayout::kLossElements> loss{};
  reduced.mean(0, exponents, 1.0F / static_cast<float>(job_.microbatches), loss);
  state.exponents = reduced.next_exponents(exponents);
  state.committed = next(state.committed);
  return loss[0];
}

}  // namespace mayfly::engine
