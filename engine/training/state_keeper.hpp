#pragma once

// The state of a worker that trains a network with SGD: parameters, momentum, statistics, exponents
// of the next step, loss scale, and the number of the step. Where a GPU updates it, parameters and
// momentum come to the host when somebody reads them (host_copy.hpp). Trainer thread only.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/digest.hpp"
#include "base/result.hpp"
#include "engine/faults/state_faults.hpp"
#include "engine/job/job.hpp"
#include "engine/reduction/gradient_buckets.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "engine/state/state_parts.hpp"
#include "engine/training/commit.hpp"
#include "engine/training/compute_pool.hpp"
#include "engine/training/host_copy.hpp"
#include "nn/checkpoint.hpp"
#include "nn/loss_scale.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

class StateKeeper {
 public:
  /// Everything outlives it. `initial` is whole; `pool` may know the state of another keeper.
  StateKeeper(const Job& job, const ReductionLayout& layout, ComputePool& pool,
              nn::ModelState initial);
  StateKeeper(const StateKeeper&) = delete;
  StateKeeper& operator=(const StateKeeper&) = delete;

  [[nodiscard]] Step committed() const { return state_.committed; }
  [[nodiscard]] const std::vector<std::int32_t>& exponents() const { return state_.exponents; }
  [[nodiscard]] const std::optional<nn::LossScale>& loss_scale() const { return state_.loss_scale; }
  /// Bytes of the state in the form in which members send it to each other.
  [[nodiscard]] std::size_t packed_size() const { return nn::packed_state_size(state_); }
  /// What of it is on the host: with a GPU that updates, parameters and momentum may be old.
  [[nodiscard]] const nn::ModelState& on_host() const { return state_; }
  /// All of it, brought to the host if need be.
  [[nodiscard]] const nn::ModelState& whole();
  /// What changes the state from sums, for a member that does not have it yet.
  [[nodiscard]] const Committer& committer() const { return committer_; }

  /// The weights of step 0, if this is the first time that somebody needs them of this worker.
  void draw_weights();
  /// Commits the reduced step, which was quantised with `exponents`: an update, or none if its
  /// gradients are not finite (`skips`). Returns the mean loss.
  double apply(const GradientBuckets& reduced, std::span<const std::int32_t> exponents, bool skips);
  /// Takes another state in place of this one.
  void replace(nn::ModelState&& state);
  /// The same in the form in which members send it. kCorrupt. Nothing may be computed meanwhile.
  [[nodiscard]] Result<void> unpack(ByteSpan packed);
  /// A scripted fault.
  void spoil(StateFaults& faults);
  /// The state; this keeper is of no use any more.
  [[nodiscard]] nn::ModelState take();

  // For comparing it with other members' (state_parts.hpp):
  /// Of what check() leaves out of most steps. Takes long for a large state.
  [[nodiscard]] std::uint64_t rest_hash();
  /// Low bits of the hash of what this step compares, with `rest` if it is the whole state.
  [[nodiscard]] std::uint32_t check(std::optional<std::uint64_t> rest);
  [[nodiscard]] Digest digest();
  /// Part by part, to find out where states differ.
  [[nodiscard]] std::vector<std::uint64_t> part_hashes();

 private:
  const Job& job_;
  ComputePool& pool_;
  nn::ModelState state_;
  HostCopy host_copy_;  // of state_
  Committer committer_;
  StateParts parts_;
};

}  // namespace mayfly::engine
