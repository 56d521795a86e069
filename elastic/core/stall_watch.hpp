#pragma once

// Finds stalls: members whose trainer makes no progress while other members wait, although the
// process is alive. It uses the positions in the sentinels' heartbeats. A member that waits for
// others is never blamed. The limit is learned: the longest time that any member of the job has
// needed for the same activity, times a factor, and at least a floor, so that a slow but healthy
// machine is not evicted. The floor is lower for a regular activity, that is, one for which no
// member has needed long recently; on a machine that other programs keep busy, no activity stays
// regular. Progress is judged only between heartbeats that arrive. Missing heartbeats are judged by
// the failure detector, and a pause between two heartbeats counts as a short one. Pure: one thread,
// no clock of its own.

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "elastic/core/member_map.hpp"
#include "elastic/core/messages.hpp"
#include "elastic/core/view.hpp"

namespace mayfly::elastic {

struct StallLimits {
  /// A member without progress is reported after report_floor, or report_factor times the longest
  /// time that the activity has taken, whichever is longer.
  Duration report_floor = milliseconds(700);
  int report_factor = 4;
  /// It is evicted after evict_floor, or evict_factor times that longest time.
  Duration evict_floor = seconds(5);
  int evict_factor = 20;
  /// Both floors until any member has completed the activity. The second is also the evict floor of
  /// activities that depend on a disk which all may share: loading, evaluating, checkpoints.
  Duration unknown_report_floor = seconds(10);
  Duration patient_evict_floor = seconds(60);
  /// Both floors, if lower, for a regular activity: for the time regular_for, in which members have
  /// completed it regular_times, it has never taken longer than regular_max. Not for activities
  /// that depend on storage or on other members.
  Duration regular_max = milliseconds(250);
  Duration regular_for = seconds(120);
  int regular_times = 500;
  Duration regular_report_floor = milliseconds(400);
  Duration regular_evict_floor = seconds(2);
  /// Stalls are reported, and no member is evicted.
  bool report_only = false;

  /// Sets evict_floor; zero = report_only. Unless it is `only_a_default`, a user has asked for this
  /// time, and regular activities get it, too.
  void evict_after(Duration still, bool only_a_default);
};

/// A member that makes no progress.
struct Stall {
  MemberId member{};
  WorkerPosition position;
  Duration still{};               ///< time without progress
  Duration longest{};             ///< longest time that this activity has taken; zero = unknown
  bool evict = false;             ///< the evict limit has passed; otherwise it is only reported
  std::vector<MemberId> waiting;  ///< the members that wait meanwhile
};

class StallWatch {
 public:
  /// Every limit must be positive, and no evict floor below its report floor.
  explicit StallWatch(StallLimits limits);

  /// A heartbeat with the member's position arrived. Instants never go back.
  void on_heartbeat(MemberId member, const WorkerPosition& position, Instant now);
  /// Stops watching; unknown members are ignored.
  void forget(MemberId member);
  /// A new view: times without progress begin anew.
  void restart();
  /// The stalls among the members `active` since the last call, in the order of their ids. Each is
  /// reported once and evicted at most once until the member moves. While no member waits, all are
  /// slow or have the same problem, and none is evicted.
  [[nodiscard]] std::vector<Stall> judge(const std::vector<MemberId>& active);
  /// True, once, if all of `active` (two or more) have waited in an exchange for longer than a
  /// stall may last: no member is to blame, but the group must be formed again.
  [[nodiscard]] bool group_is_stuck(const std::vector<MemberId>& active);

  /// The member's last position; nothing before its first one.
  [[nodiscard]] std::optional<WorkerPosition> position(MemberId member) const;

 private:
  struct Watched {
    WorkerPosition position;
    Instant seen;      // its last heartbeat
    Duration still{};  // time without progress
    bool reported = false;
    bool evicted = false;
  };
  /// How long the job's members have taken for one activity so far.
  struct History {
    Duration longest{};        // forgotten slowly
    Instant irregular;         // when it last took longer than StallLimits::regular_max
    int times_since_then = 0;  // completions since then, at most StallLimits::regular_times
    bool is_new = true;        // no member has completed it
  };
  void learn(Activity activity, Duration took, Instant now);
  /// The activity is so frequent and short that the lower floors apply.
  [[nodiscard]] bool is_regular(Activity activity) const;
  [[nodiscard]] Duration report_limit(Activity activity) const;
  [[nodiscard]] Duration evict_limit(Activity activity) const;
  [[nodiscard]] Stall stall_of(MemberId member, const Watched& watched,
                               const std::vector<MemberId>& active) const;

  StallLimits limits_;
  std::array<History, kActivities> history_{};
  Instant now_;  // instant of the last heartbeat
  MemberMap<Watched> watched_;
  bool stuck_reported_ = false;
};

/// One readable line: the member, its activity, the time without progress, and the waiting members.
[[nodiscard]] std::string describe(const Stall& stall);
/// The same with the rank in `view` and the name of the bucket, if they are known: "rank 1 computes
/// microbatch 5 of step 100, bucket 2 (layer1.0.conv1) and has not ..."
[[nodiscard]] std::string describe(const Stall& stall, const std::optional<View>& view,
                                   const std::vector<std::string>& bucket_names);

}  // namespace mayfly::elastic
