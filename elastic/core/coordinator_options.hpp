#pragma once

// The settings of a coordinator. Each of its state machines copies the ones that it needs.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "elastic/core/speed_meter.hpp"
#include "elastic/core/stall_watch.hpp"
#include "elastic/core/view.hpp"

namespace mayfly::elastic {

/// When microbatches are redistributed although no member joined or left.
struct RebalanceOptions {
  bool enabled = true;
  double gain_min = 0.15;           ///< least saving, as a share of the slowest member's time
  Duration sustained = seconds(1);  ///< the saving must have been predicted for this long
  Duration interval = seconds(5);  ///< least time between two changes; doubles if they are frequent
  Duration interval_max = seconds(320);
  Duration repaid_within = seconds(60);  ///< a change must save the time it costs within this time
};

/// When a slow member is asked to leave.
struct StragglerOptions {
  double factor = 0;  ///< it is this many times slower than the others' median; 0 = never
  Duration after = seconds(30);  ///< and has been so for this long without a break
};

struct CoordinatorOptions {
  std::uint32_t microbatches = 8;     ///< per step
  std::uint32_t initial_workers = 1;  ///< the first view waits for this many members,
  std::uint32_t initial_servers = 0;  ///< of which so many are or carry parameter servers
  std::uint32_t min_workers = 1;      ///< with fewer workers the job waits
  /// True if the member with this address counts for min_workers. Parameter servers are members,
  /// too, but do not count: a job that has lost one must not wait, it may have to end. Empty =
  /// every member counts. Pure.
  std::function<bool(const std::string& address)> counts_as_worker = {};
  /// True if the member with this address counts for initial_servers. Empty = none does. Pure.
  std::function<bool(const std::string& address)> counts_as_server = {};
  /// True: a step needs every member, so the committed steps of members differ by at most one.
  /// False with parameter servers, which count the steps.
  bool steps_need_all_members = true;
  /// The step of the state that every worker may have from the start, that of --resume: a worker
  /// that has no later one has nothing that the job has trained.
  Step first_step{};
  /// The job's last step: a member that reports the end of the job before this step is evicted.
  /// Nothing with parameter servers, because members do not count the steps then.
  std::optional<Step> last_step;
  /// Most members of a view. Further ready workers are spares: they wait, in order of arrival,
  /// until there is a place. A view has more if it needs their consent or their newer state.
  std::uint32_t view_max = kMembersMax;
  Duration min_workers_timeout = seconds(600);  ///< waiting longer ends the job (exit code 4)
  Duration silence_max = milliseconds(300);     ///< longer silence: evicted (adapts upwards)
  /// The same for a member whose machine still answers and whose process is not known to be
  /// stopped: it lacks processor time. At least silence_max.
  Duration starved_max = seconds(1);
  /// A member that was told to stop at once is evicted if it has not reported Stopped after this
  /// time. An abort is quick, but a microbatch that is being computed is not interrupted.
  Duration stop_timeout = seconds(10);
  /// If states differ, all members detect it in the same reduction. This long after the first
  /// report the members that have not reported it are told to stop.
  Duration dispute_timeout = seconds(1);
  /// When a member without progress is reported and evicted.
  StallLimits stalls;
  /// Readable contents of each bucket; empty = buckets are named by their numbers.
  std::vector<std::string> bucket_names;
  std::uint64_t seed = 0;  ///< of view keys
  /// Readable names of the parts that a disputed state's hashes cover; empty = their numbers.
  std::vector<std::string> state_part_names;
  RebalanceOptions rebalance;
  StragglerOptions stragglers;
  Duration speed_sample = kSpeedSample;
  /// If the state has at least this size, a joining worker is an observer until it has received it.
  /// A smaller state is sent while all members wait, which costs less than another change of view.
  std::uint64_t observe_from_bytes = std::uint64_t{8} << 20;
  /// Members of views with at least this many members are sent differences (NewViewDelta).
  std::uint32_t delta_from_members = 32;
  /// Observers that have received the state within this time of each other get work together.
  Duration start_together = milliseconds(100);
  /// Must be equal on all workers; a worker that differs is refused with the first difference.
  std::vector<std::pair<std::string, std::string>> fingerprint;

  // A coordinator may die (docs/adr/0015-coordinator-failover.md):
  /// Random, new for every coordinator process and not 0. Identifies the process in votes and, if
  /// it starts a job, the job.
  std::uint64_t identity = 1;
  /// There are standbys: after an unplanned change a view needs a majority of the last view's
  /// members, so that at most one side of a partition continues. Equal for all coordinators of a
  /// job.
  bool quorum = false;
  /// This coordinator only takes over a job; it neither starts one nor admits new workers before
  /// that.
  bool standby = false;
  /// Members that have not returned this long after the first one did are lost.
  Duration resume_timeout = seconds(2);
  /// Without a quorum: if no member has returned for this long, all are lost. If the job is to be
  /// stopped, resume_timeout is used instead.
  Duration abandon_timeout = seconds(30);
  /// With a quorum: members that have waited for others this long, or up to twice as long, are sent
  /// to another coordinator.
  Duration quorum_timeout = seconds(3);
};

}  // namespace mayfly::elastic
