#pragma once

// The state of a worker that trains a network with SGD: parameters, momentum, statistics, exponents
// of the next step, loss scale, and the number of the step. If a GPU updates the state, parameters
// and momentum are fetched when they are read (host_copy.hpp). Trainer thread only, except as
// StateKeeper states.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/digest.hpp"
#include "base/result.hpp"
#include "engine/faults/chaos_plan.hpp"
#include "engine/job/job.hpp"
#include "engine/network/commit.hpp"
#include "engine/network/compute_pool.hpp"
#include "engine/network/host_copy.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "engine/state/state_parts.hpp"
#include "engine/training/state_keeper.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

class SgdKeeper final : public StateKeeper {
 public:
  /// All references outlive it. `initial` is complete. From now on `pool` computes with it; before,
  /// it may have had the state of another keeper.
  SgdKeeper(const Job& job, const ReductionLayout& layout, ComputePool& pool,
            nn::ModelState initial);
  SgdKeeper(const SgdKeeper&) = delete;
  SgdKeeper& operator=(const SgdKeeper&) = delete;

  [[nodiscard]] Step committed() const override { return state_.committed; }
  [[nodiscard]] const std::vector<std::int32_t>& exponents() const override {
    return state_.exponents;
  }
  [[nodiscard]] std::optional<nn::LossScale> loss_scale() const override {
    return state_.loss_scale;
  }
  [[nodiscard]] double learning_rate() const override {
    return nn::learning_rate_at(job_.schedule, value(state_.committed));
  }
  void draw_weights() override;
  [[nodiscard]] bool is_on_device() const override { return pool_.updates_on_device(); }
  double apply(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
               bool skips) override;

  [[nodiscard]] std::size_t packed_size() const override { return nn::packed_state_size(state_); }
  void prepare_to_pack() override { host_copy_.bring_all(); }
  void pack(std::size_t first, std::span<std::byte> out) const override {
    nn::pack_state_part(state_, first, out);
  }
  [[nodiscard]] Result<void> unpack(ByteSpan packed) override;
  [[nodiscard]] std::unique_ptr<ObservedState> make_observed() override;
  [[nodiscard]] nn::CheckpointFiles checkpoint() override;

  [[nodiscard]] std::uint64_t rest_hash() override;
  [[nodiscard]] std::uint32_t check(std::optional<std::uint64_t> rest) override;
  [[nodiscard]] Digest digest() override;
  [[nodiscard]] std::vector<std::uint64_t> part_hashes() override;

  /// Damages the state if a scripted fault is due after committed().
  void spoil(StateFaults& faults);
  /// Returns the state; afterwards this keeper must not be used.
  [[nodiscard]] nn::ModelState take();

 private:
  class Observed;
  /// The complete state, fetched to the host if necessary.
  [[nodiscard]] const nn::ModelState& whole();

  const Job& job_;
  ComputePool& pool_;
  nn::ModelState state_;
  HostCopy host_copy_;  // of state_
  Committer committer_;
  StateParts parts_;
};

}  // namespace mayfly::engine
