#pragma once

// Decides which worker computes which slices, as a pure state machine beside the first shard.
// Workers lease slices. A lease is over when its worker reports that every shard has answered; if a
// worker is lost, its unconfirmed slices are leased again. So no slice is ever lost, and because
// shards ignore repeated pushes, none counts twice, even if its worker died between two shards.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/ids.hpp"
#include "collectives/parameter_server/core/lease.hpp"
#include "collectives/parameter_server/core/lease_holders.hpp"
#include "collectives/parameter_server/core/returned_slices.hpp"
#include "collectives/parameter_server/core/straggler_watch.hpp"
#include "collectives/parameter_server/core/streamed_steps.hpp"
#include "collectives/parameter_server/core/sync_plan.hpp"

namespace mayfly::parameter_server {

class LeaseTable {
 public:
  struct Options {
    bool one_shard = true;  ///< the job has no other shards
    StragglerPolicy stragglers = StragglerPolicy::kNone;
  };
  /// `plan` must outlive the table; it is changed only if training diverges.
  LeaseTable(SyncPlan& plan, Options options);

  /// The workers of the present view; all others lose their leases. The job does not wait for a
  /// worker that has not connected, unless it is at its beginning.
  [[nodiscard]] Grants set_workers(const std::set<MemberId>& workers);
  /// No new step is begun until go_on().
  void hold();
  [[nodiscard]] Grants go_on();

  /// A worker has connected, or connected again, and has every lease up to `received`.
  [[nodiscard]] Grants connected(MemberId worker, std::uint64_t received);
  /// The worker has pushed all its slices, or has none, and wants a lease.
  [[nodiscard]] Grants wants(MemberId worker);
  /// The worker has nothing to do, and its leases up to this serial are over.
  [[nodiscard]] Grants rested(MemberId worker, std::uint64_t through);
  /// The worker's leases up to this serial are over.
  [[nodiscard]] Grants confirmed(MemberId worker, std::uint64_t through);
  /// These slices are in the parameters of the first shard.
  [[nodiscard]] Grants applied(const std::vector<std::uint64_t>& slices);
  /// The first shard keeps this slice for a round.
  void staged(std::uint64_t slice);
  /// This worker pushed the slice too late (SyncKind::kBackup). If possible another worker gets it,
  /// because a worker that is slow in this version is likely to be slow in the next.
  [[nodiscard]] Grants dropped(MemberId worker, std::uint64_t slice);
  /// The workers that are much slower than the others now, each with its ratio (straggler_watch).
  /// Present leases are not changed: the policy takes effect at the end of a step.
  [[nodiscard]] Grants set_stragglers(const std::map<MemberId, double>& stragglers);
  /// Whether the present phase, one without rounds, may be diverging. States of such a time are not
  /// recorded, and the job does not fall back to them.
  void set_doubt(bool doubts) { doubts_ = doubts; }
  /// Training has diverged. No step of the present phase is begun any more; when every shard has
  /// all leased slices, the plan falls back to the newest phase that began while no divergence was
  /// suspected (set_doubt()).
  void set_diverged() { diverged_ = true; }

  /// The table is held, and no worker has anything left to do.
  [[nodiscard]] bool is_quiet() const;
  [[nodiscard]] bool is_over() const { return phase_ == plan_.phases().size(); }
  /// Whether the time between a lease and its slices measures the speed of the worker: in the
  /// present phase no worker waits for others in between.
  [[nodiscard]] bool shows_speeds() const;
  /// The version of the parameters when exactly the slices before this one are applied, as
  /// SyncPlan::version_at, plus the updates of steps that were done slice by slice.
  [[nodiscard]] std::uint64_t version_at(std::uint64_t slice) const;
  /// Steps of kBsp are done slice by slice at present.
  [[nodiscard]] bool streams() const { return streamed_.streams(); }
  /// Number of slices that had to be leased again, because their worker was lost before it had
  /// confirmed them.
  [[nodiscard]] std::uint64_t reissued() const { return reissued_; }
  [[nodiscard]] std::uint64_t late() const { return late_; }
  /// Number of slices that had to be computed with parameters of two versions, because no worker
  /// had the older version.
  [[nodiscard]] std::uint64_t mixed() const { return mixed_; }

 private:
  std::uint64_t take_back(const std::vector<Lease>& leases);
  [[nodiscard]] bool is_awaited(const LeaseHolders::Worker& worker) const;
  [[nodiscard]] bool is_settled(std::uint64_t slice) const;
  void grant(MemberId id, Lease lease);
  Grants serve();
  void serve_returned();
  void serve_returned(std::uint64_t slice);
  [[nodiscard]] bool misses_earlier_round(std::uint64_t slice) const;
  void serve_phase();
  void serve_bsp();
  void serve_round();
  void serve_stream();
  void probe(const std::set<MemberId>& left_out, std::uint64_t first, std::uint64_t count);
  [[nodiscard]] bool wants_stream() const;
  [[nodiscard]] std::set<MemberId> left_out() const;
  void serve_backup();
  void serve_snapshot();
  void note_cut(std::uint64_t slice);
  void fall_back();
  [[nodiscard]] bool is_recorded() const;
  [[nodiscard]] bool is_at_rest() const;
  [[nodiscard]] bool must_restore() const;
  [[nodiscard]] bool all_idle() const;
  [[nodiscard]] bool is_drained() const;
  [[nodiscard]] std::optional<MemberId> worker_for_awaited_slice() const;
  [[nodiscard]] std::optional<std::uint64_t> take_slice(MemberId id);
  [[nodiscard]] bool is_over(const Lease& lease) const;
  void next_phase();
  void check_invariants() const;
  [[nodiscard]] const SyncPhase& phase() const { return plan_.phases()[phase_]; }

  SyncPlan& plan_;
  const Options options_;
  std::size_t phase_ = 0;  // all workers are idle when it ends
  std::uint64_t next_;     // the first slice that was never leased
  ReturnedSlices returned_;
  SliceSet applied_;
  std::set<std::uint64_t> staged_;
  std::uint64_t updates_ = 0;   // number of updates in this phase
  std::uint64_t complete_ = 0;  // rounds of kBsp before this version are complete on every shard
  LeaseHolders workers_;
  std::optional<MemberId> recorder_;  // the worker that records the snapshot at the phase's end
  bool held_ = false;
  bool doubts_ = false;
  bool diverged_ = false;
  std::uint64_t cut_;   // the first slice of the present phase
  std::uint64_t good_;  // cut_ of this phase or the one before, to which the job would fall back
  std::map<MemberId, double> stragglers_;
  StreamedSteps streamed_;
  std::uint64_t rounds_ = 0;  // number of rounds that were begun
  std::uint64_t reissued_ = 0;
  std::uint64_t late_ = 0;
  std::uint64_t mixed_ = 0;
  Grants grants_;
};

}  // namespace mayfly::parameter_server
