#include "engine/commit.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "nn/optimizer.hpp"

namespace mayfly::engine {

Committer::Committer(const Job& job, const ReductionLayout& layout)
    : job_(job), layout_(layout), mean_(layout.element_count()) {}

float Committer::commit(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
                        nn::ModelState& state) {
  if (job_.exact()) {
    dequantize(reduced, exponents);
  } else {
    average(reduced);
  }
  const Step step = next(state.committed);
  const nn::SgdOptions sgd{static_cast<float>(job_.config.momentum),
                           static_cast<float>(job_.config.weight_decay)};
  const auto rate = static_cast<float>(nn::learning_rate_at(job_.schedule, value(step)));
  nn::sgd_update(sgd, rate, mean_.span().subspan(layout_.parameters_offset()),
                 state.parameters.span(), state.momentum.span());
  nn::update_running_statistics(
      kStatisticsRate, mean_.span().subspan(layout_.statistics_offset(), state.statistics.size()),
      state.statistics.span());
  for (std::size_t b = 0; b < state.exponents.size(); ++b) {
    state.exponents[b] = collectives::next_exponent(exponents[b], reduced.observed()[b]);
  }
  state.committed = step;
  return mean_[0];
}

void Committer::dequantize(const GradientBuckets& reduced,
                           std::span<const std::int32_t> exponents) {
  const float scale = 1.0F / static_cast<float>(job_.microbatches);
  const int bits = collectives::magnitude_bits(job_.microbatches);
  const std::span<const std::int32_t> sums{
      reinterpret_cast<const std::int32_t*>(reduced.words().data()), reduced.words().size()};
  for (std::size_t b = 0; b < layout_.blocks().block_count(); ++b) {
    const std::size_t first = layout_.blocks().offset(b);
    const std::size_t size = layout_.blocks().size(b);
    collectives::dequantize(sums.subspan(first, size), exponents[b], bits, scale,
                            mean_.span().subspan(first, size));
  }
}

void Committer::average(const GradientBuckets& reduced) {
  const float scale = 1.0F / static_cast<float>(job_.microbatches);
  const auto* sums = reinterpret_cast<const float*>(reduced.words().data());
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    mean_[i] = sums[i] * scale;
  }
}

std::vector<std::int32_t> raised_exponents(std::span<const std::int32_t> exponents,
                                           std::span<const std::int32_t> observed) {
  ENSURE(exponents.size() == observed.size(), "one observation per block");
  std::vector<std::int32_t> raised(exponents.size());
  for (std::size_t b = 0; b < raised.size(); ++b) {
    raised[b] = std::max(exponents[b], collectives::next_exponent(exponents[b], observed[b]));
  }
  return raised;
}

}  // namespace mayfly::engine
