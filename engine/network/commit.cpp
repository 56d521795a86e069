#include "engine/network/commit.hpp"

#include <array>

#include "base/check.hpp"

namespace mayfly::engine {

nn::SgdOptions Committer::sgd() const {
  return {static_cast<float>(job_.config.momentum), static_cast<float>(job_.config.weight_decay)};
}

float Committer::rate_of(Step step) const {
  return static_cast<float>(nn::learning_rate_at(job_.schedule, value(step)));
}

// The result of sgd_update() does not depend on how an array is divided into blocks.
void Committer::update_block(std::size_t block, std::span<const float> mean, float rate,
                             nn::ModelState& state) const {
  const std::size_t first = layout_.blocks().offset(block);
  if (first >= layout_.parameters_offset()) {
    const std::size_t at = first - layout_.parameters_offset();
    nn::sgd_update(sgd(), rate, mean, state.parameters.span().subspan(at, mean.size()),
                   state.momentum.span().subspan(at, mean.size()));
  } else if (first >= layout_.statistics_offset()) {
    const std::size_t at = first - layout_.statistics_offset();
    nn::update_running_statistics(kStatisticsRate, mean,
                                  state.statistics.span().subspan(at, mean.size()));
  }
}

// Block by block, so that a mean is still in the nearest cache when the optimizer reads it.
void Committer::update(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
                       std::size_t first, std::size_t last, nn::ModelState& state) const {
  const float rate = rate_of(next(state.committed));
  alignas(64) std::array<float, collectives::kBlockElements> memory;
  for (std::size_t b = first; b < last; ++b) {
    const std::span<float> mean = std::span(memory).first(layout_.blocks().size(b));
    reduced.mean(b, exponents, means_.scale(), mean);
    update_block(b, mean, rate, state);
  }
}

float Committer::commit(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
                        ComputePool& pool, nn::ModelState& state) const {
  if (pool.updates_on_device()) {
    update(reduced, exponents, 0, layout_.first_parameter_block(), state);
    pool.update_on_device(sgd(), means_.scale(), rate_of(next(state.committed)), state);
  } else {
    means_.for_all_blocks(pool, [&](std::size_t first, std::size_t last) {
      update(reduced, exponents, first, last, state);
    });
  }
  const float loss = means_.loss(reduced, exponents);
  state.exponents = reduced.next_exponents(next(state.committed), exponents);
  count_step(false, state);
  return loss;
}

void Committer::count_step(bool overflowed, nn::ModelState& state) {
  if (state.loss_scale.has_value()) {
    state.loss_scale = state.loss_scale->after_step(overflowed);
    ENSURE(state.loss_scale.has_value(), "training that has diverged goes no step further");
  }
  state.committed = next(state.committed);
}

float Committer::skip(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
                      ComputePool& pool, nn::ModelState& state) const {
  ENSURE(state.loss_scale.has_value(), "only a loss scale may be too large");
  if (pool.updates_on_device()) {
    pool.keep_on_device(state);
  }
  count_step(true, state);
  return means_.loss(reduced, exponents);
}

void Committer::apply(const ObservedStep& observed, nn::ModelState& state) const {
  ENSURE(observed.step == next(state.committed), "observed steps are applied in order");
  if (observed.is_skipped) {
    count_step(true, state);
    return;
  }
  const float rate = rate_of(observed.step);
  for (std::size_t b = 0; b < layout_.blocks().block_count(); ++b) {
    update_block(
        b, observed.means.span().subspan(layout_.blocks().offset(b), layout_.blocks().size(b)),
        rate, state);
  }
  state.exponents = observed.next_exponents;
  count_step(false, state);
}

}  // namespace mayfly::engine
