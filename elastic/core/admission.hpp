#pragma once

// Decides which workers may belong to a job: whether a coordinator admits a new worker, or a member
// that has outlived its coordinator or its connection; whether the report of such a member can be
// true; and how long a coordinator waits for members before it takes charge. Pure; one thread.

#include <cstdint>
#include <optional>
#include <string>

#include "base/time.hpp"
#include "elastic/core/coordinator_events.hpp"
#include "elastic/core/coordinator_options.hpp"
#include "elastic/core/membership.hpp"
#include "elastic/core/messages.hpp"
#include "elastic/core/term.hpp"

namespace mayfly::elastic {

/// True if the member still holds a part of the view in its report. A member that joins again holds
/// none.
[[nodiscard]] bool has_part(const Resume& resume);

/// True if the report of member `id` does not contradict itself. Otherwise it must be ignored.
[[nodiscard]] bool makes_sense(MemberId id, const Resume& resume);

/// True if the hello of a member names no job, or ids that no coordinator of the incarnations that
/// it has accepted can have assigned, or ids or an incarnation beyond their limits.
[[nodiscard]] bool is_impossible(const Hello& hello);

/// For a member that is not in the last view but has a part in an earlier one: true if none of the
/// present peers has a newer state. Then members of the last view were lost before they reported,
/// or before they entered it, and without this member the job would lose steps. Two states of the
/// same step are equal if they are of the same view. Otherwise, with rounded sums, the step may
/// have been computed twice with different bits: then the state of the later view counts, or that
/// of a worker that has been in no view. Not for parameter servers, which count steps that no
/// member here holds.
[[nodiscard]] bool holds_newest_state(MemberId id, const Resume& report, const Peers& peers,
                                      ViewId last_view);

/// Updates a member's report with a message that the member sends later; messages that do not
/// belong there, or are about another view, change nothing. Returns the step that the message
/// reports as committed, if any.
[[nodiscard]] std::optional<Step> amend(Resume& report, const Message& message);

/// All members of the last view have returned and still run it: nothing has to change.
[[nodiscard]] bool all_run_on(const Membership& membership);

/// Every member that has returned with a part in a view has committed the job's last step. The
/// others may have been told that the job has ended, and have left.
[[nodiscard]] bool only_finished_returned(const Membership& membership);

/// How long a coordinator waits for the members of the last view. They return one by one as they
/// lose their connections, and some may never return.
class ReturnWatch {
 public:
  explicit ReturnWatch(const CoordinatorOptions& options);

  /// The waiting begins.
  void begin(Instant now);
  /// A member has reported.
  void on_report(Instant now) { first_return_ = first_return_.value_or(now); }
  /// When the first member reported since begin(); there must have been one.
  [[nodiscard]] Instant first_return() const;
  /// The waiting is over: every member has returned, or resume_timeout has passed since the first
  /// one. Without a quorum also if none has returned within abandon_timeout, or, `in_haste` (the
  /// job is to be stopped), within resume_timeout, because members try twice a second.
  [[nodiscard]] bool is_due(const Membership& membership, bool in_haste, Instant now) const;
  /// The same for members that only have to be told that the job has ended.
  [[nodiscard]] bool is_over(const Membership& membership, Instant now) const;
  /// This process was itself suspended for `pause` and could not receive anything: waits longer.
  void extend_deadlines(Duration pause, Instant now);

 private:
  Duration resume_timeout_;
  std::optional<Duration> abandon_timeout_;  // nothing with a quorum

  std::optional<Instant> since_;
  std::optional<Instant> first_return_;
};

/// The reason why a worker with this hello cannot join this job; nothing if it can.
[[nodiscard]] std::optional<std::string> reason_to_refuse(const Hello& hello, JobPhase phase,
                                                          const Term& term,
                                                          const Membership& membership);

/// Why a member that has an id is not readmitted; nothing if it is. It must not have a peer any
/// more, unless it is of another job.
[[nodiscard]] std::optional<Refused> reason_to_turn_away(const Hello& hello, JobPhase phase,
                                                         const Term& term,
                                                         const Membership& membership);

}  // namespace mayfly::elastic
