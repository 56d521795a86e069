#pragma once

// Checks of what members report about themselves. The numbers of a worker that knows the token are
// trusted, but no report can stop the coordinator: a member whose reports contradict each other,
// the view or other members' reports is named here, with the reason, and evicted. Pure; one thread.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "elastic/core/coordinator_options.hpp"
#include "elastic/core/membership.hpp"
#include "elastic/core/messages.hpp"

namespace mayfly::elastic {

/// Why this report of a member that is active in the present view cannot be true, whatever other
/// members report; nothing if it can be.
[[nodiscard]] std::optional<std::string> inconsistency_in(const Stopped& stopped, MemberId id,
                                                          const Membership& membership);

/// Compares the reports of all living members of a view that has ended. To be asked when all have
/// stopped, before the next view; the accused members must be removed before it is asked again.
class ClaimJudge {
 public:
  explicit ClaimJudge(const CoordinatorOptions& options)
      : steps_need_all_members_(options.steps_need_all_members), last_step_(options.last_step) {}

  /// Members whose committed step cannot be true beside those of the others. An honest worker that
  /// continued alone, or with members that the job has lost, is among them: it may join again
  /// without that state, and would be evicted again and again with it.
  [[nodiscard]] std::vector<Accusation> false_steps(const Membership& membership) const;
  /// Members that report the end of the job too early, and members that never report it although
  /// most other members do. To be called once for each view that has ended.
  [[nodiscard]] std::vector<Accusation> false_ends(const Membership& membership);

 private:
  bool steps_need_all_members_;
  std::optional<Step> last_step_;
  /// For members that had committed the last step, but had not finished when most others had.
  std::map<MemberId, std::uint32_t> unfinished_views_;
};

// Disputes: members have detected that their states differ, or that two of them got different
// results for the same microbatch. All have stopped before anything was committed after that, and
// each reports hashes of the parts of its state, or of its result. Two corrupted results are never
// equal, so a result that two independent members report is right. The members with other hashes
// are evicted; the sums of the remaining members are kept.

/// The hashes that one member reports.
struct Witness {
  MemberId member{};
  std::vector<std::uint64_t> hashes;  ///< of the parts, in the same order for all members
  /// False: it copied its state from another witness, so its report proves nothing.
  bool is_independent = true;
  bool contradicts_itself = false;  ///< it computed the same thing twice and got different results
};

struct Verdict {
  bool decided = false;              ///< false: the reports do not show which state is right
  std::vector<MemberId> odd;         ///< the members that are wrong, in the order of the witnesses
  std::vector<std::uint32_t> parts;  ///< the parts in which the first of these differs
};

/// The hashes are right that at least two independent witnesses report, and more of them than any
/// other hashes. Witnesses that contradict themselves do not count; if all others do, one witness
/// is enough. Every witness with other hashes is odd.
[[nodiscard]] Verdict odd_one_out(const std::vector<Witness>& witnesses);

struct DisputeVerdict {
  /// Set if the reports do not show which state is right: why the job cannot continue.
  std::optional<std::string> deadlock;
  std::vector<MemberId> odd;  ///< members whose state must never be used again
  std::string reason;         ///< why they are evicted
};

/// Judges the view whose members have all stopped. `part_names`: readable names of what each hash
/// of a disputed state covers; empty = their numbers. An empty verdict if there is no dispute, or
/// if some members had to stop before they could report: the next view compares everything again.
[[nodiscard]] DisputeVerdict judge_dispute(const Membership& membership,
                                           const std::vector<std::string>& part_names);

}  // namespace mayfly::elastic
