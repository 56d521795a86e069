#pragma once

// Divides the time between two commits among the kinds of work on which it was spent. All members
// wait for each other in the reduction, so the slowest member, which is the last to be ready for
// it, determines how long a step takes; the rest is the exchange and the update. The maximum of one
// of the reduction's signals tells all members which one was the slowest. In the signals of the
// next step that member sends how it spent its time, and each member sends how long it waited for
// others in the exchange: the others waited for the one that waited least. Clocks of different
// hosts are not compared: members begin a step together, because the reduction of the step before
// is complete on all of them at the same time. Pure; trainer thread only.

#include <cstdint>
#include <optional>

#include "base/time.hpp"
#include "elastic/core/view.hpp"
#include "engine/reduction/gradient_buckets.hpp"
#include "engine/run/records.hpp"

namespace mayfly::engine {

/// How long a member has waited so far.
struct MemberWaits {
  // For data, its compute threads in the mean, since the process began (LoaderWait):
  Duration fetch{};
  Duration prep{};
  /// For other members, in the group (Group::time_waited()).
  std::optional<Duration> members = std::nullopt;

  [[nodiscard]] Duration data() const { return fetch + prep; }
};

class StepClock {
 public:
  /// The first step of a view is not divided, as members begin it one after the other.
  void begin_view();
  // Work that is not part of a step: an evaluation of the test set, between the previous commit and
  // the step's own work, and a copy of the state for a checkpoint, between the step's reduction and
  // its update.
  void evaluated(Duration took) { evaluating_ += took; }
  void copied_state(Duration took) { copying_ += took; }

  /// To be called when this member, which has this rank, passes its last sums to the reduction.
  /// Returns the signals of this member.
  [[nodiscard]] ReadySignals ready(Instant now, const MemberWaits& waits, Rank self,
                                   bool is_first_step);
  /// To be called when the reduction is complete; `members` as in MemberWaits.
  void reduced(Instant now, const ReadySignals& slowest, std::optional<Duration> members);
  /// To be called when the state has been updated. Returns how the time of the previous step was
  /// spent, if it is known.
  [[nodiscard]] std::optional<StepTimes> committed(Instant now, const MemberWaits& waits,
                                                   const elastic::View& view);

  /// The time between the last two commits; 0 before the second.
  [[nodiscard]] Duration last_step() const { return last_step_; }
  /// The part of last_step() in which compute threads waited for data, in the mean.
  [[nodiscard]] Duration last_wait() const { return last_wait_; }
  /// The part of last_step() in which the state was copied for a checkpoint.
  [[nodiscard]] Duration last_copy() const { return last_copy_; }

 private:
  /// The durations of a step that this member itself has measured.
  struct Own {
    Duration step{};
    Duration update{};
  };

  [[nodiscard]] std::optional<HeldUp> held_up(const elastic::View& view, Duration exchange) const;
  [[nodiscard]] bool has_committed() const { return committed_.ns != 0; }

  Instant committed_;
  Instant reduced_;
  Duration evaluating_{};
  Duration copying_{};
  MemberWaits at_commit_;
  Duration last_step_{};
  Duration last_wait_{};
  Duration last_copy_{};
  // For the present step:
  std::optional<SlowestMember> self_;  // this member's facts, sent if it is the slowest
  bool is_slowest_ = false;
  std::optional<SlowestMember> slowest_before_;  // of all members
  std::optional<ExchangeWaits> waits_before_;    // of all members
  std::optional<Duration> members_at_ready_;     // as in MemberWaits
  // For the step before:
  std::optional<SlowestMember> self_before_;  // if it was the slowest
  std::optional<ExchangeWaits> own_waits_;    // this member's alone
  std::optional<Own> before_;
};

}  // namespace mayfly::engine
