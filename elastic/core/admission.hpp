#pragma once

// Who may take part in a job: whether a coordinator lets in a new worker, or a member that outlived
// its coordinator or its connection; whether what such a member reports can be true; and for how
// long a coordinator waits for members before it takes charge. Pure.

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

/// The member has a part in the view that it tells of; one that joins again only had one.
[[nodiscard]] bool has_part(const Resume& resume);

/// The parts of the report of member `id` agree with each other. If not, it is to be ignored.
[[nodiscard]] bool makes_sense(MemberId id, const Resume& resume);

/// Names ids that no coordinator of an incarnation that it has accepted can have given it, or that
/// none would ever come to.
[[nodiscard]] bool is_impossible(const Hello& hello);

/// Of a member that the last view left out, and that has a part in an earlier one: of those who are
/// here nobody has as much. Members of the last view were lost before they told us, or before they
/// entered it, and the job would go back. Two states of the same step are equal if they are of the
/// same view. Otherwise, with rounded sums, the step may have been done twice with other bits: then
/// the one of the later view counts, or the one that somebody brings who has been in none. Not for
/// parameter servers, which count steps that nobody here holds.
[[nodiscard]] bool holds_newest_state(MemberId id, const Resume& told, const Peers& peers,
                                      ViewId last_view);

/// Enters what the member says after its report into the report; what does not belong there, or is
/// of another view, changes nothing. Returns the step that it says it has committed, if it does.
[[nodiscard]] std::optional<Step> amend(Resume& report, const Message& message);

/// All members of the last view are back and still run it: nothing has to change.
[[nodiscard]] bool all_run_on(const Membership& membership);

/// All that are back with a part in a view have done the job's last step. They publish nothing, and
/// the others may have been told so and be gone.
[[nodiscard]] bool only_finished_returned(const Membership& membership);

/// Since when members are waited for. They come back one by one as they notice, and not all of
/// them.
class ReturnWatch {
 public:
  explicit ReturnWatch(const CoordinatorOptions& options);

  /// From now on members are waited for.
  void begin(Instant now);
  /// One of them has said what it does.
  void heard(Instant now) { first_return_ = first_return_.value_or(now); }
  /// Of a member, since begin(); there must have been one.
  [[nodiscard]] Instant first_return() const;
  /// The waiting is over: everybody has come back, or it is too late for the others. Without a
  /// quorum also if nobody has come back for long; `in_haste` (the job is to be stopped) for less
  /// long, as members would try twice a second.
  [[nodiscard]] bool is_due(const Membership& membership, bool in_haste, Instant now) const;
  /// The same for members that only have to be told that the job has ended.
  [[nodiscard]] bool is_over(const Membership& membership, Instant now) const;
  /// While this process stood still itself nobody could be heard.
  void excuse(Duration pause, Instant now);

 private:
  Duration resume_timeout_;
  std::optional<Duration> abandon_timeout_;  // nothing with a quorum

  std::optional<Instant> since_;
  std::optional<Instant> first_return_;
};

/// Why nobody with this hello can have a part in this job; nothing if one can.
[[nodiscard]] std::optional<std::string> reason_to_refuse(const Hello& hello, JobPhase phase,
                                                          std::uint32_t workers_max,
                                                          const Term& term,
                                                          const Membership& membership);

/// Why a member that has an id is not taken back; nothing if it is. The place that it had is gone
/// already.
[[nodiscard]] std::optional<Refused> reason_to_turn_away(const Hello& hello, JobPhase phase,
                                                         std::uint32_t workers_max,
                                                         const Term& term,
                                                         const Membership& membership);

}  // namespace mayfly::elastic
