#include "engine/commit.hpp"

#include <array>

#include "nn/optimizer.hpp"

namespace mayfly::engine {

// Block by block, so that a mean is still in the nearest cache when the optimizer reads it. How an
// array is cut does not change what sgd_update() computes.
float Committer::commit(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
                        nn::ModelState& state) {
  const Step step = next(state.committed);
  const nn::SgdOptions sgd{static_cast<float>(job_.config.momentum),
                           static_cast<float>(job_.config.weight_decay)};
  const auto rate = static_cast<float>(nn::learning_rate_at(job_.schedule, value(step)));
  const float scale = 1.0F / static_cast<float>(job_.microbatches);
  const collectives::BlockLayout& blocks = layout_.blocks();
  alignas(64) std::array<float, collectives::kBlockElements> memory;
  float loss = 0;
  for (std::size_t b = 0; b < blocks.block_count(); ++b) {
    const std::size_t first = blocks.offset(b);
    const std::span<float> mean = std::span(memory).first(blocks.size(b));
    reduced.mean(b, exponents, scale, mean);
    if (first >= layout_.parameters_offset()) {
      const std::size_t at = first - layout_.parameters_offset();
      nn::sgd_update(sgd, rate, mean, state.parameters.span().subspan(at, mean.size()),
                     state.momentum.span().subspan(at, mean.size()));
    } else if (first >= layout_.statistics_offset()) {
      const std::size_t at = first - layout_.statistics_offset();
      nn::update_running_statistics(kStatisticsRate, mean,
                                    state.statistics.span().subspan(at, mean.size()));
    } else {
      loss = mean[0];
    }
  }
  state.exponents = reduced.next_exponents(exponents);
  state.committed = step;
  return loss;
}

}  // namespace mayfly::engine
