#pragma once

// The state of one shard: statistics, parameters and momentum of its range, updated with the same
// arithmetic as in all-reduce training (nn/optimizer). One thread at a time.

#include <array>
#include <cstdint>
#include <span>

#include "base/aligned_buffer.hpp"
#include "collectives/parameter_server/shard.hpp"
#include "collectives/parameter_server/slice_gradient.hpp"
#include "engine/parameter_server/ps_job.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

class SgdShard final : public parameter_server::ShardState {
 public:
  /// `job`, `ps` and `layout` outlive it; `initial` is copied.
  SgdShard(const Job& job, const PsJob& ps, const ReductionLayout& layout, ShardRange range,
           const nn::ModelState& initial);

  void apply(std::span<const parameter_server::SliceGradient> slices,
             const parameter_server::Update& update) override;
  void keep(std::uint64_t slice) override;
  void restore(std::uint64_t slice) override;
  [[nodiscard]] std::span<const float> values() const override { return values_.span(); }
  [[nodiscard]] std::span<const float> momentum() const override { return momentum_.span(); }

 private:
  const Job& job_;
  const PsJob& ps_;
  std::size_t statistics_ = 0;  // number of statistics, which precede the parameters in values_
  AlignedBuffer<float> values_;
  AlignedBuffer<float> momentum_;  // zero for statistics

  struct Copy {
    std::uint64_t slice = 0;
    AlignedBuffer<float> values;  // empty: not used yet
    AlignedBuffer<float> momentum;
  };
  std::array<Copy, 2> copies_;  // the older one is replaced
  std::size_t newest_ = 0;
};

/// The parts of a state that a shard's values (or momentum) consist of: statistics, then
/// parameters.
struct ShardValues {
  std::span<float> statistics;
  std::span<float> parameters;
};
[[nodiscard]] ShardValues values_in(nn::ModelState& state, const ReductionLayout& layout,
                                    ShardRange range);
/// Copies a shard's whole state, its values and then its momentum, into its range of `state`.
void put_shard(nn::ModelState& state, const ReductionLayout& layout, ShardRange range,
               std::span<const float> all);

}  // namespace mayfly::engine
