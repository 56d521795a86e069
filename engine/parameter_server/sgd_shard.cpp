#include "engine/parameter_server/sgd_shard.hpp"

#include <algorithm>
#include <array>

#include "base/check.hpp"
#include "engine/network/commit.hpp"
#include "nn/optimizer.hpp"

namespace mayfly::engine {
ShardValues values_in(nn::ModelState& state, const ReductionLayout& layout, ShardRange range) {
  const std::size_t border = std::clamp(layout.parameters_offset(), range.first, range.last);
  ShardValues parts;
  if (border > range.first) {
    parts.statistics = state.statistics.span().subspan(range.first - layout.statistics_offset(),
                                                       border - range.first);
  }
  if (range.last > border) {
    parts.parameters =
        state.parameters.span().subspan(border - layout.parameters_offset(), range.last - border);
  }
  return parts;
}

void put_shard(nn::ModelState& state, const ReductionLayout& layout, ShardRange range,
               std::span<const float> all) {
  const ShardValues values = values_in(state, layout, range);
  const std::size_t statistics = values.statistics.size();
  std::ranges::copy(all.first(statistics), values.statistics.begin());
  std::ranges::copy(all.subspan(statistics, values.parameters.size()), values.parameters.begin());
  if (!values.parameters.empty()) {
    const auto first = static_cast<std::size_t>(values.parameters.data() - state.parameters.data());
    std::ranges::copy(all.subspan(range.last - range.first + statistics, values.parameters.size()),
                      state.momentum.data() + first);
  }
}

SgdShard::SgdShard(const Job& job, const PsJob& ps, const ReductionLayout& layout, ShardRange range,
                   const nn::ModelState& initial)
    : job_(job), ps_(ps), values_(range.last - range.first), momentum_(range.last - range.first) {
  const std::size_t border = std::clamp(layout.parameters_offset(), range.first, range.last);
  statistics_ = border - range.first;
  const std::span<const float> statistics = initial.statistics.span();
  std::ranges::copy(
      statistics.subspan(statistics_ > 0 ? range.first - layout.statistics_offset() : 0,
                         statistics_),
      values_.data());
  const std::size_t count = range.last - border;
  const std::size_t first = count > 0 ? border - layout.parameters_offset() : 0;
  std::ranges::copy(initial.parameters.span().subspan(first, count), values_.data() + statistics_);
  std::ranges::copy(initial.momentum.span().subspan(first, count), momentum_.data() + statistics_);
}

void SgdShard::keep(std::uint64_t slice) {
  newest_ = 1 - newest_;
  Copy& copy = copies_[newest_];
  if (copy.values.size() != values_.size()) {
    copy.values = AlignedBuffer<float>(values_.size());
    copy.momentum = AlignedBuffer<float>(momentum_.size());
  }
  copy.slice = slice;
  std::ranges::copy(values_.span(), copy.values.data());
  std::ranges::copy(momentum_.span(), copy.momentum.data());
}

void SgdShard::restore(std::uint64_t slice) {
  for (const Copy& copy : copies_) {
    if (copy.slice == slice && copy.values.size() == values_.size()) {
      std::ranges::copy(copy.values.span(), values_.data());
      std::ranges::copy(copy.momentum.span(), momentum_.data());
      return;
    }
  }
  ENSURE(values_.size() == 0, "only what was kept is restored");
}

void SgdShard::apply(std::span<const parameter_server::SliceGradient> slices,
                     const parameter_server::Update& update) {
  std::uint64_t microbatches = 0;
  for (const parameter_server::SliceGradient& slice : slices) {
    microbatches += slice.microbatches;
  }
  const auto rate = static_cast<float>(ps_.rate_of(job_, update, microbatches));
  const nn::SgdOptions sgd = sgd_of(job_, update.settings);
  alignas(64) std::array<float, parameter_server::kMeanBlock> block;
  for (std::size_t first = 0; first < values_.size();) {
    const std::size_t border = first < statistics_ ? statistics_ : values_.size();
    const std::size_t size = std::min(block.size(), border - first);
    const std::span<float> mean(block.data(), size);
    parameter_server::mean_of(slices, first, mean);
    const std::span<float> values = values_.span().subspan(first, size);
    if (first < statistics_) {
      nn::update_running_statistics(kStatisticsRate, mean, values);
    } else {
      nn::sgd_update(sgd, rate, mean, values, momentum_.span().subspan(first, size));
    }
    first += size;
  }
}

}  // namespace mayfly::engine
