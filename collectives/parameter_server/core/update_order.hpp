#pragma once

// The order of updates on one shard, as a pure state machine. It decides when a pushed slice
// changes the parameters, whether it is kept for a round or was there before, and when each worker
// is sent the parameters. Driven by a shard's event loop, by the tests' simulator, and by a
// recorded order: equal events have equal results.
//
// Every slice of the job enters the shard's parameters exactly once, however often it is pushed.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "collectives/parameter_server/core/sync_plan.hpp"

namespace mayfly::parameter_server {

/// A worker's gradient of one slice has arrived completely.
struct Push {
  MemberId worker{};
  std::uint64_t slice = 0;
  std::uint64_t base_version = 0;       ///< version of the parameters that it was computed with
  std::uint64_t clock = 0;              ///< see Lease; includes this slice
  std::optional<std::uint64_t> wanted;  ///< answer with parameters of this version or a later one
  bool at_once = false;                 ///< see Lease
};

/// One change of the parameters.
struct Update {
  std::vector<std::uint64_t> slices;   ///< in the order in which they are summed
  std::uint64_t committed_before = 0;  ///< slices of the whole job that were applied before
  std::uint64_t version = 0;           ///< version of the parameters after it
  std::uint64_t staleness = 0;         ///< updates since the version that it was computed with
  std::uint64_t step = 0;              ///< number of the step after those that are done before it
  std::uint64_t steps_after = 0;       ///< number of steps that are done after it
  PhaseSettings settings{};            ///< of its phase
  double rate = 1;                     ///< factor of the schedule's learning rate
  std::uint32_t workers = 1;           ///< number of live workers
  bool begins_phase = false;           ///< every shard has had the slices before it
};

enum class PushFate : std::uint8_t {
  kApplied,  ///< is an update
  kStaged,   ///< is kept until its round is complete, or completes it
  kRepeat,   ///< was there before: to be discarded
  kLate,     ///< its round was completed without it: some worker must compute it again
};

struct PushOutcome {
  PushFate fate = PushFate::kRepeat;
  std::optional<Update> update;   ///< to be carried out now, from the staged slices
  std::vector<MemberId> answers;  ///< workers that are then sent the parameters, in order
};

/// The progress of a shard's parameters.
struct StateVersion {
  std::uint64_t version = 0;  ///< updates in them
  std::uint64_t slices = 0;   ///< number of the job's slices in them
  std::uint64_t prefix = 0;   ///< all slices before this one are in them; others may be, too
  friend bool operator==(const StateVersion&, const StateVersion&) = default;
};
/// True if every shard has whole steps, the same ones, and no other slice: a job can be resumed
/// from there. `shards` is not empty.
[[nodiscard]] bool are_whole(const std::vector<StateVersion>& shards, const SyncPlan& plan);

class UpdateOrder {
 public:
  explicit UpdateOrder(const SyncPlan& plan);

  /// kInvalidInput if no worker that follows its leases can have computed the slice yet; then
  /// nothing has changed.
  [[nodiscard]] Result<PushOutcome> pushed(const Push& push);
  /// A worker that has work requests parameters of this version or a later one. This and the next
  /// functions return the workers that are sent parameters now.
  [[nodiscard]] std::vector<MemberId> pulled(MemberId worker, std::uint64_t clock,
                                             std::uint64_t wanted);
  /// The worker has no work. Until it pulls or pushes, no worker waits for it, and it is sent no
  /// parameters.
  [[nodiscard]] std::vector<MemberId> rested(MemberId worker);
  [[nodiscard]] std::vector<MemberId> gone(MemberId worker);
  /// The parameters were restored: exactly the slices before the plan's Rewind::at count as done,
  /// and those after Rewind::to are not in the parameters any more. It counts as an update.
  void restored() { ++version_; }

  [[nodiscard]] std::uint64_t version() const { return version_; }
  [[nodiscard]] StateVersion state() const {
    return {version_, applied_.count(), applied_.prefix()};
  }
  /// The slices that are in the parameters.
  [[nodiscard]] const SliceSet& applied() const { return applied_; }
  /// The number of slices in an unfinished round.
  [[nodiscard]] std::size_t staged() const { return staged_.size(); }
  /// Number of updates by staleness; only in phases without rounds.
  [[nodiscard]] const std::map<std::uint64_t, std::uint64_t>& staleness() const {
    return staleness_;
  }

 private:
  struct Worker {
    std::uint64_t clock = 0;
    bool works = false;
    std::optional<std::uint64_t> wanted;
  };

  [[nodiscard]] Result<PushFate> fate_of(const Push& push) const;
  [[nodiscard]] bool round_is_complete(const SyncPhase& phase) const;
  Update apply_one(const Push& push);
  Update apply_round();
  [[nodiscard]] Update update_of(std::vector<std::uint64_t> slices) const;
  Worker& note_clock(MemberId worker, std::uint64_t clock);
  [[nodiscard]] std::optional<std::uint64_t> slowest() const;
  [[nodiscard]] bool may_proceed(const Worker& worker) const;
  [[nodiscard]] std::vector<MemberId> take_answers();

  const SyncPlan& plan_;
  std::uint64_t version_ = 0;
  SliceSet applied_;
  std::map<std::uint64_t, std::uint64_t> staged_;  // slice to base version
  std::map<MemberId, Worker> workers_;
  std::map<std::uint64_t, std::uint64_t> staleness_;
};

}  // namespace mayfly::parameter_server
