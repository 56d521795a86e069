#pragma once

// The state of a worker that trains a network with SGD: parameters, momentum, statistics, exponents
// of the next step, loss scale, and the number of the step. Where a GPU updates the state,
// parameters and momentum are fetched when they are read (host_copy.hpp). Trainer thread only.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/digest.hpp"
#include "base/result.hpp"
#include "engine/faults/chaos_plan.hpp"
#include "engine/job/job.hpp"
#include "engine/reduction/gradient_buckets.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "engine/state/state_parts.hpp"
#include "engine/training/commit.hpp"
#include "engine/training/compute_pool.hpp"
#include "engine/training/host_copy.hpp"
#include "nn/checkpoint.hpp"
#include "nn/dtype.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

class StateKeeper {
 public:
  /// All references outlive it. `initial` is complete; `pool` may still have the state of another
  /// keeper.
  StateKeeper(const Job& job, const ReductionLayout& layout, ComputePool& pool,
              nn::ModelState initial);
  StateKeeper(const StateKeeper&) = delete;
  StateKeeper& operator=(const StateKeeper&) = delete;

  [[nodiscard]] Step committed() const { return state_.committed; }
  [[nodiscard]] const std::vector<std::int32_t>& exponents() const { return state_.exponents; }
  [[nodiscard]] const std::optional<nn::LossScale>& loss_scale() const { return state_.loss_scale; }
  /// Bytes of the state in the format in which members send it to each other.
  [[nodiscard]] std::size_t packed_size() const { return nn::packed_state_size(state_); }
  /// The host's copy: with a GPU that updates, its parameters and momentum may be old.
  [[nodiscard]] const nn::ModelState& on_host() const { return state_; }
  /// The complete state, fetched to the host if necessary.
  [[nodiscard]] const nn::ModelState& whole();
  /// The arithmetic of a commit, for a member that does not have the state yet.
  [[nodiscard]] const Committer& committer() const { return committer_; }

  /// Generates the weights of step 0, if they are needed for the first time.
  void draw_weights();
  /// Commits the reduced step, which was quantised with `exponents`: an update, or none if its
  /// gradients are not finite (`skips`). Returns the mean loss.
  double apply(const GradientBuckets& reduced, std::span<const std::int32_t> exponents, bool skips);
  /// Takes another state in place of this one.
  void replace(nn::ModelState&& state);
  /// The same from the format in which members send it. kCorrupt. Nothing may be computed
  /// meanwhile.
  [[nodiscard]] Result<void> unpack(ByteSpan packed);
  /// Damages the state, as a scripted fault.
  void spoil(StateFaults& faults);
  /// Returns the state; afterwards this keeper must not be used.
  [[nodiscard]] nn::ModelState take();

  // For comparison with the states of other members (state_parts.hpp):
  /// The hash of everything that check() leaves out in most steps. Takes long for a large state.
  [[nodiscard]] std::uint64_t rest_hash();
  /// Low bits of the hash that this step compares; with `rest` it covers the whole state.
  [[nodiscard]] std::uint32_t check(std::optional<std::uint64_t> rest);
  [[nodiscard]] Digest digest();
  /// The hash of each part, to find out where states differ.
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
