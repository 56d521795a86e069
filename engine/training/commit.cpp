#include "engine/training/commit.hpp"

#include <array>
#include <limits>

#include "base/check.hpp"

namespace mayfly::engine {
namespace {

/// Fewer elements than this are updated sooner than another thread has woken up.
constexpr std::size_t kElementsPerThread = std::size_t{256} << 10;

}  // namespace

nn::SgdOptions Committer::sgd() const {
  return {static_cast<float>(job_.config.momentum), static_cast<float>(job_.config.weight_decay)};
}

float Committer::rate_of(Step step) const {
  return static_cast<float>(nn::learning_rate_at(job_.schedule, value(step)));
}

// How an array is cut into blocks does not change what sgd_update() computes.
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
                       Range blocks, nn::ModelState& state) const {
  const float rate = rate_of(next(state.committed));
  const float scale = scale_of_mean();
  alignas(64) std::array<float, collectives::kBlockElements> memory;
  for (std::size_t b = blocks.first; b < blocks.last; ++b) {
    const std::span<float> mean = std::span(memory).first(layout_.blocks().size(b));
    reduced.mean(b, exponents, scale, mean);
    update_block(b, mean, rate, state);
  }
}

template <typename Function>
void Committer::for_all_blocks(ComputePool& pool, Function function) const {
  const std::size_t blocks = layout_.blocks().block_count();
  if (layout_.element_count() < 2 * kElementsPerThread || pool.thread_count() == 1) {
    function(Range{0, blocks});
  } else {
    pool.run_parts([&](std::uint32_t part, std::uint32_t parts) {
      function(Range{blocks * part / parts, blocks * (part + 1) / parts});
    });
  }
}

float Committer::commit(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
                        ComputePool& pool, nn::ModelState& state) const {
  if (pool.updates_on_device()) {
    update(reduced, exponents, {0, layout_.first_parameter_block()}, state);
    pool.update_on_device(sgd(), scale_of_mean(), rate_of(next(state.committed)), state);
  } else {
    for_all_blocks(pool, [&](Range blocks) { update(reduced, exponents, blocks, state); });
  }
  std::array<float, ReductionLayout::kLossElements> loss{};
  reduced.mean(0, exponents, scale_of_mean(), loss);
  state.exponents = reduced.next_exponents(next(state.committed), exponents);
  count_step(false, state);
  return loss[0];
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
  return loss_of_skipped(reduced, exponents);
}

float Committer::loss_of_skipped(const GradientBuckets& reduced,
                                 std::span<const std::int32_t> exponents) const {
  if (!reduced.fits(0, exponents)) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  std::array<float, ReductionLayout::kLossElements> loss{};
  reduced.mean(0, exponents, scale_of_mean(), loss);
  return loss[0];
}

ObservedStep Committer::blank() const {
  ObservedStep blank;
  blank.means = AlignedBuffer<float>(layout_.element_count());
  return blank;
}

void Committer::observe(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
                        ComputePool& pool, ObservedStep& observed) const {
  if (observed.means.size() == 0) {
    observed.means = blank().means;
  }
  const float scale = scale_of_mean();
  for_all_blocks(pool, [&](Range blocks) {
    for (std::size_t b = blocks.first; b < blocks.last; ++b) {
      reduced.mean(
          b, exponents, scale,
          observed.means.span().subspan(layout_.blocks().offset(b), layout_.blocks().size(b)));
    }
  });
  observed.next_exponents = reduced.next_exponents(observed.step, exponents);
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
