#pragma once

// The next action of a worker in a job with parameter servers, as a pure state machine: it holds
// leases, records the version of each shard's parameters that the worker has, and returns one
// action at a time. It keeps a complete older set of parameters until every shard has answered, so
// that the worker can compute a lost worker's slice of the same round once more.

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "collectives/parameter_server/core/lease.hpp"

namespace mayfly::parameter_server {

namespace flow {
/// No action; an answer or a lease must arrive.
struct Wait {};
/// Ask these shards for parameters of this version or a later one.
struct Pull {
  std::vector<std::uint32_t> shards;
  std::uint64_t version = 0;
  std::uint64_t clock = 0;
  std::uint64_t question = 0;  ///< number of the question, which the answer repeats
};
/// From now on use the parameters that these shards have sent.
struct Adopt {
  std::vector<std::uint32_t> shards;
};
/// Compute the slice with the adopted parameters and push it to every shard. The message to a shard
/// in `pulls` also asks for parameters of this version or a later one.
struct Compute {
  std::uint64_t slice = 0;
  std::vector<std::uint32_t> pulls;
  std::uint64_t version = 0;
  std::uint64_t clock = 0;     ///< includes this slice
  std::uint64_t question = 0;  ///< for those in `pulls`
  bool wants_lease = false;
  bool at_once = false;  ///< see Lease
};
/// Compute the slices with any parameters and discard the result.
struct Probe {
  std::uint64_t first = 0;
  std::uint32_t count = 0;
};
/// Record the state after all slices before `first`, then call recorded().
struct Snapshot {
  std::uint64_t first = 0;
};
/// Tell every shard that the worker has nothing to do, and which leases are over.
struct Rest {};
struct Over {};
}  // namespace flow

using FlowAction = std::variant<flow::Wait, flow::Pull, flow::Adopt, flow::Compute, flow::Probe,
                                flow::Snapshot, flow::Rest, flow::Over>;

class WorkerFlow {
 public:
  explicit WorkerFlow(std::uint32_t shards);

  /// The first shard has granted a lease. A lease that was received before is ignored, and so are
  /// leases after a missing one: the shard repeats them when this worker connects again.
  void granted(const Lease& lease);
  /// True if the answer to this question is awaited. Other answers belong to a lost connection and
  /// must be ignored.
  [[nodiscard]] bool expects(std::uint32_t shard, std::uint64_t question) const {
    return shards_[shard].asked == question;
  }
  /// The expected parameters of this shard have arrived.
  void answered(std::uint32_t shard, std::uint64_t version);
  /// The connection to this shard is new, so messages of the old one may be lost. Every push or
  /// question that is not known to have arrived is repeated.
  void reconnected(std::uint32_t shard);
  /// This shard has admitted the worker.
  void welcomed(std::uint32_t shard) { shards_[shard].is_known = true; }
  /// The connection to this shard may be made; that to the first shard only when all others have
  /// admitted the worker. The first shard grants leases, and others may wait for a worker with a
  /// lease: a worker that cannot reach some shard must have none.
  [[nodiscard]] bool may_greet(std::uint32_t shard) const;
  void recorded();

  /// The next action. The machine counts it as done, so the caller must carry it out before the
  /// next call.
  [[nodiscard]] FlowAction next();

  /// Leases up to this serial are over.
  [[nodiscard]] std::uint64_t done_through() const { return done_through_; }
  /// Leases up to this serial have been received.
  [[nodiscard]] std::uint64_t received() const { return received_; }
  /// The version of a shard's parameters that this worker has adopted.
  [[nodiscard]] std::uint64_t version(std::uint32_t shard) const { return shards_[shard].held; }
  /// The newest rewind of the plan that this worker knows; every message of it contains it.
  [[nodiscard]] const std::optional<Rewind>& rewind() const { return rewind_; }

 private:
  struct Shard {
    std::uint64_t held = 0;
    std::optional<std::uint64_t> asked;    // the question that it was asked
    std::uint64_t asked_for = 0;           // the lowest version that was asked for
    std::optional<std::uint64_t> arrived;  // version of an answer that is not adopted
    bool is_known = false;                 // it has admitted this worker
  };
  struct Held {
    Lease lease;
    std::uint32_t pushed = 0;  // number of its slices that were pushed
    bool again = false;        // it was pushed before, and the push may be lost
  };

  [[nodiscard]] bool awaits_answers() const;
  [[nodiscard]] bool is_ready(const Lease& lease) const;
  [[nodiscard]] bool is_repeatable(const Lease& lease) const;
  [[nodiscard]] bool is_past(const Lease& lease) const;
  void drop_past();
  void finish(std::uint64_t serial);
  [[nodiscard]] std::optional<FlowAction> adopt();
  [[nodiscard]] std::optional<FlowAction> work();
  [[nodiscard]] static bool shows_arrival(const Shard& shard, std::uint64_t version);
  [[nodiscard]] FlowAction compute(std::size_t place);
  [[nodiscard]] std::optional<FlowAction> fetch();
  std::uint64_t ask(const std::vector<std::uint32_t>& shards, std::uint64_t version);

  std::vector<Shard> shards_;
  bool has_parameters_ = false;
  std::optional<Rewind> rewind_;
  std::deque<Held> leases_;       // in the order of their serials
  std::vector<Held> unanswered_;  // pushed, and over when the next answers are adopted
  std::set<std::uint64_t> over_;  // serials above done_through_
  std::uint64_t done_through_ = 0;
  std::uint64_t rest_reported_through_ = 0;  // done_through_ of the last Rest
  std::uint64_t received_ = 0;
  std::uint64_t questions_ = 0;  // number of questions so far
};

}  // namespace mayfly::parameter_server
