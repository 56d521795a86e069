#pragma once

// Finds the member that keeps the others waiting although its process lives: a trainer that stands
// still. Fed with the positions in the sentinels' heartbeats. A member that waits for others is
// never a culprit. How long is too long is learned: the longest that any member of the job has been
// seen to take over the same activity, times a factor, and never less than a floor; so a slow but
// healthy machine is not evicted. The floor is lower while all that the job's members have done of
// late was short: on a machine that is busy for others some of it would not have been. Standing
// still is measured between heartbeats that did arrive; heartbeats that do not are the failure
// detector's business, and a pause between two counts as a short one. Pure: one thread, no clock of
// its own.

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
  /// Standing still for so long is reported; whichever is more.
  Duration report_floor = milliseconds(700);
  int report_factor = 4;  ///< times the longest seen
  /// Standing still for so long is the end.
  Duration evict_floor = seconds(5);
  int evict_factor = 20;
  /// Both floors while nobody has completed such an activity yet, and the end's floor where a slow
  /// disk may be shared by all: loading, evaluating, checkpoints.
  Duration unknown_report_floor = seconds(10);
  Duration patient_evict_floor = seconds(60);
  /// Both floors, if lower, for an activity over which the job's members have not once taken longer
  /// for such a time, in which they have completed it so often. Not for storage, and not where
  /// members wait for others.
  Duration regular_max = milliseconds(250);
  Duration regular_for = seconds(120);
  int regular_times = 500;
  Duration regular_report_floor = milliseconds(400);
  Duration regular_evict_floor = seconds(2);
  /// No one is evicted.
  bool report_only = false;

  /// Sets the end's floor; zero: no one is evicted. Unless that is `only_a_default`, somebody has
  /// asked for so much patience, and gets it from regular members, too.
  void evict_after(Duration still, bool only_a_default);
};

/// A member that stands still.
struct Stall {
  MemberId member{};
  WorkerPosition position;
  Duration still{};               ///< for how long
  Duration longest{};             ///< that this activity was seen to take; zero = never seen
  bool evict = false;             ///< beyond the last limit; otherwise it is only reported
  std::vector<MemberId> waiting;  ///< those that wait meanwhile
};

class StallWatch {
 public:
  /// Every limit is positive, and what ends a member is not less than what is reported of it.
  explicit StallWatch(StallLimits limits);

  /// A heartbeat told where the member stands. Instants never go back.
  void heard(MemberId member, const WorkerPosition& position, Instant now);
  /// Stops watching; unknown members are ignored.
  void forget(MemberId member);
  /// A new view: nobody has stood still in it yet.
  void restart();
  /// Members of `active` that have become a stall since the last call, each reported once and
  /// evicted at most once per stand-still. While nobody waits, everybody is merely slow or has the
  /// same trouble, and nobody is evicted. In the order of their ids.
  [[nodiscard]] std::vector<Stall> judge(const std::vector<MemberId>& active);
  /// All of `active` (two or more) wait in an exchange and have for longer than a stall may last:
  /// no member is to blame, but the group does not come to life by itself. True once.
  [[nodiscard]] bool group_is_stuck(const std::vector<MemberId>& active);

  /// Where the member stands; nothing before its first position.
  [[nodiscard]] std::optional<WorkerPosition> position(MemberId member) const;

 private:
  struct Watched {
    WorkerPosition position;
    Instant seen;      // its last heartbeat
    Duration still{};  // for how long it has not moved
    bool reported = false;
    bool evicted = false;
  };
  /// What the job's members have taken over one activity so far.
  struct History {
    Duration longest{};        // forgotten slowly
    Instant irregular;         // when one took longer than StallLimits::regular_max
    int times_since_then = 0;  // completed; counted up to StallLimits::regular_times
    bool is_new = true;        // nobody has completed it
  };
  void learn(Activity activity, Duration took, Instant now);
  /// So often and so short that the lower floors hold.
  [[nodiscard]] bool is_regular(Activity activity) const;
  [[nodiscard]] Duration report_limit(Activity activity) const;
  [[nodiscard]] Duration evict_limit(Activity activity) const;
  [[nodiscard]] Stall stall_of(MemberId member, const Watched& watched,
                               const std::vector<MemberId>& active) const;

  StallLimits limits_;
  std::array<History, kActivities> history_{};
  Instant now_;  // of the last heartbeat
  MemberMap<Watched> watched_;
  bool stuck_told_ = false;
};

/// One readable line: which member stands still in what, for how long, and which ones wait.
[[nodiscard]] std::string describe(const Stall& stall);
/// The same with the rank in `view` and the name of the bucket, if they are known: "rank 1 computes
/// microbatch 5 of step 100, bucket 2 (layer1.0.conv1) and has not ..."
[[nodiscard]] std::string describe(const Stall& stall, const std::optional<View>& view,
                                   const std::vector<std::string>& bucket_names);

}  // namespace mayfly::elastic
