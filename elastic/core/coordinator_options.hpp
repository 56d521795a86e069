#pragma once

// What a coordinator is told about its job. Each of its machines copies the settings that it needs.

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

/// When microbatches are distributed anew although no member came or went.
struct RebalanceOptions {
  bool enabled = true;
  double gain_min = 0.15;           ///< part of the slowest member's time that must be saved
  Duration sustained = seconds(1);  ///< for so long the gain is seen before anything is changed
  Duration interval = seconds(5);   ///< between two changes at first; doubles if they are frequent
  Duration interval_max = seconds(320);
  Duration repaid_within = seconds(60);  ///< what a change costs must be gained back so soon
};

/// When a slow member is asked to leave.
struct StragglerOptions {
  double factor = 0;             ///< slower than the others' median so many times; 0 = never
  Duration after = seconds(30);  ///< for so long without a break
};

struct CoordinatorOptions {
  std::uint32_t microbatches = 8;     ///< per step
  std::uint32_t initial_workers = 1;  ///< the first view waits for so many members
  std::uint32_t min_workers = 1;      ///< below this the job waits
  /// Of a member's address: it counts for min_workers. Others (parameter servers) are members, too,
  /// but a job that has lost one does not wait: it may have to end. Empty = every member counts.
  /// Pure.
  std::function<bool(const std::string& address)> counts_as_worker = {};
  /// A step needs every member, so what members have committed differs by one step at most. False
  /// with parameter servers, which count the steps.
  bool steps_need_everybody = true;
  /// The job's last step: a member that says that the job is over before it is evicted. Nothing if
  /// steps are not the members' to count (parameter servers).
  std::optional<Step> last_step;
  std::uint32_t max_workers = kMembersMax;
  /// Members of a view. Workers that are ready beyond that are spares: they wait, in order of
  /// arrival, until there is a place.
  std::uint32_t view_max = kMembersMax;
  Duration min_workers_timeout = seconds(600);  ///< waiting longer ends the job (exit code 4)
  Duration silence_max =
      milliseconds(300);  ///< a member silent for so long is evicted (adaptive upwards)
  /// The same for one whose machine still answers and whose process was not seen to be stopped: it
  /// waits for a processor. At least silence_max.
  Duration starved_max = seconds(1);
  /// A member that has not reported Stopped so long after it was told to stop at once is evicted.
  /// An abort is quick, but a microbatch that is being computed is not interrupted.
  Duration stop_timeout = seconds(10);
  /// Members whose states differ all find out in the same reduction. They are told to stop only if
  /// some have not said so this long after the first one.
  Duration dispute_timeout = seconds(1);
  /// When a member that stands still is reported and evicted.
  StallLimits stalls;
  /// Readable contents of each bucket; empty: its number is used.
  std::vector<std::string> bucket_names;
  std::uint64_t seed = 0;  ///< of view keys
  /// Readable names of what each hash of a disputed state covers; empty: its number is used.
  std::vector<std::string> state_part_names;
  RebalanceOptions rebalance;
  StragglerOptions stragglers;
  Duration speed_sample = kSpeedSample;
  /// A joiner whose state has so many bytes observes until it has it; a smaller one is sent to it
  /// while all wait, which costs them less than another change of view.
  std::uint64_t observe_from_bytes = std::uint64_t{8} << 20;
  /// Members of a view of at least so many are sent what changes, not the whole next view.
  std::uint32_t delta_from_members = 32;
  /// Observers of the same snapshot that are done so soon after each other start work together.
  Duration start_together = milliseconds(100);
  /// Must be equal on all workers; a worker that differs is refused with the first difference.
  std::vector<std::pair<std::string, std::string>> fingerprint;

  // A coordinator may die (docs/adr/0015-coordinator-failover.md):
  /// Random, new for every coordinator process and not 0. Names the process in votes and, if it
  /// starts a job, the job.
  std::uint64_t identity = 1;
  /// There are standbys: after an unplanned change a view needs a majority of the last view's
  /// members, so that at most one side of a partition goes on. All coordinators of a job alike.
  bool quorum = false;
  /// This one only takes over a job; it neither starts one nor takes in new workers before that.
  bool standby = false;
  /// Members that have not come back so long after the first one did are lost.
  Duration resume_timeout = seconds(2);
  /// Without a quorum: if nobody has come back for so long, all members are lost. If the job is to
  /// be stopped, resume_timeout is enough.
  Duration abandon_timeout = seconds(30);
  /// With a quorum: members that wait here for so long for others, up to twice that, are sent to
  /// another coordinator.
  Duration quorum_timeout = seconds(3);
};

}  // namespace mayfly::elastic
