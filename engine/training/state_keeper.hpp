#pragma once

// The port of a worker's state, which each committed step changes, and which is equal on all
// members after it. The trainer commits steps, compares states, and sends and receives them through
// this port, and knows neither tensors nor the optimizer. SgdKeeper implements it for the built-in
// networks. A keeper and the Computer that computes with its state are made together.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "base/digest.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "engine/reduction/gradient_buckets.hpp"
#include "engine/run/records.hpp"
#include "engine/training/step_means.hpp"
#include "nn/checkpoint_files.hpp"
#include "nn/dtype.hpp"

namespace mayfly::engine {

/// The state of the job that an observer receives: it is filled with the received bytes, updated
/// with the sums of the steps since, and finally replaces the keeper's own. Until then the keeper
/// is not changed. One thread at a time: the observer's, then the trainer's.
class ObservedState {
 public:
  virtual ~ObservedState() = default;

  /// Fills it with the packed state of another keeper. After kCorrupt it must not be used.
  [[nodiscard]] virtual Result<void> unpack(ByteSpan packed) = 0;
  /// The last step in it.
  [[nodiscard]] virtual Step committed() const = 0;
  /// StateKeeper::check() of this state, of the kind that covers the whole state.
  [[nodiscard]] virtual std::uint32_t check() const = 0;
  /// Applies the step after committed(), with the same bits as StateKeeper::apply().
  virtual void apply(const ObservedStep& step) = 0;
  /// The keeper takes this state in place of its own. Trainer thread, once, as the last call;
  /// nothing may be computed meanwhile.
  virtual void hand_over() = 0;
};

/// Equal calls give equal bits on all workers of a job. Trainer thread only, unless stated
/// otherwise.
class StateKeeper {
 public:
  virtual ~StateKeeper() = default;

  // The state that the next step begins with:
  /// The last step in the state.
  [[nodiscard]] virtual Step committed() const = 0;
  /// The exponents of the exact sum's blocks; empty in fp32 reduction.
  [[nodiscard]] virtual const std::vector<std::int32_t>& exponents() const = 0;
  /// None if gradients are not scaled; then a step whose gradients are not finite ends the job.
  [[nodiscard]] virtual std::optional<nn::LossScale> loss_scale() const = 0;
  /// The learning rate of the step committed(), for records; 0 = the engine does not know it.
  [[nodiscard]] virtual double learning_rate() const = 0;
  /// The metrics that the user's own program reported for the step committed(), for records.
  [[nodiscard]] virtual std::vector<OwnMetric> own_metrics() const { return {}; }
  /// Generates the state of step 0 if this was deferred. The trainer calls it before the state is
  /// first used or packed; it may be called at any time.
  virtual void draw_weights() = 0;
  /// Whether a device updates the state and computes with it. Reading the state from the device
  /// takes long, but may be done while microbatches are computed.
  [[nodiscard]] virtual bool is_on_device() const = 0;

  /// Commits the reduced step, which was quantised with `exponents`: an update, or none if its
  /// gradients are not finite (`skips`, only with a loss scale). committed() grows by one, and
  /// exponents() are those that `reduced` gives for the next step. Returns the mean loss. Must not
  /// fail. No microbatch is being computed.
  virtual double apply(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
                       bool skips) = 0;

  // For members that lack the state:
  /// Bytes of the packed state, the same on all members and after every step.
  [[nodiscard]] virtual std::size_t packed_size() const = 0;
  /// To be called before pack(): fetches the parts of the state that are on a device.
  virtual void prepare_to_pack() = 0;
  /// Copies the bytes of the packed state from `first` on, as many as `out` has room for. Any
  /// thread, while the state does not change.
  virtual void pack(std::size_t first, std::span<std::byte> out) const = 0;
  /// Takes a packed state in place of this one. kCorrupt, and then the state must not be used
  /// before another one is taken. Nothing may be computed meanwhile.
  [[nodiscard]] virtual Result<void> unpack(ByteSpan packed) = 0;
  /// Memory for the state of the job, every page of it touched: joining workers allocate it before
  /// members wait for them. Null if this state cannot be observed: then the job must not have
  /// observers (CoordinatorOptions::observe_from_bytes).
  [[nodiscard]] virtual std::unique_ptr<ObservedState> make_observed() = 0;

  /// The state as files of a checkpoint.
  [[nodiscard]] virtual nn::CheckpointFiles checkpoint() = 0;

  // For comparison with the states of other members (ADR 18):
  /// The hash of everything that check() leaves out in most steps. Takes long for a large state.
  [[nodiscard]] virtual std::uint64_t rest_hash() = 0;
  /// The hash that members compare in this step; only its low 31 bits count. It covers at least
  /// everything that determines the step's gradients; with `rest` it covers the whole state.
  [[nodiscard]] virtual std::uint32_t check(std::optional<std::uint64_t> rest) = 0;
  /// The digest of the whole state, for records.
  [[nodiscard]] virtual Digest digest() = 0;
  /// The hash of each part, to find out where states differ.
  [[nodiscard]] virtual std::vector<std::uint64_t> part_hashes() = 0;
};

}  // namespace mayfly::engine
