#pragma once

// What members say of themselves, compared with what can be true: a worker that knows the token is
// trusted with its numbers, but not with the machine. A member that contradicts itself, the view or
// the others is named here, with the reason, and evicted; nothing that it says can stop the job.
// Pure.

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

/// Why this report of a member that is active in the present view cannot be true, whatever the
/// others say; nothing if it can.
[[nodiscard]] std::optional<std::string> inconsistency_in(const Stopped& stopped, MemberId id,
                                                          const Membership& membership);

/// Compares what all living members of a view that has ended say. To be asked when all have
/// stopped, before the next view; the accused must be gone before the next question.
class ClaimJudge {
 public:
  explicit ClaimJudge(const CoordinatorOptions& options)
      : steps_need_everybody_(options.steps_need_everybody), last_step_(options.last_step) {}

  /// Members that say of their step what cannot be true beside what the others say. An honest
  /// worker that went on alone, or was with those that the job has lost, is among them: it is
  /// welcome without that state, and would be evicted with it again and again.
  [[nodiscard]] std::vector<Accusation> false_steps(const Membership& membership) const;
  /// Members that say that the job is over too early, and those that never get there although most
  /// of the others do. Once for each view that has ended.
  [[nodiscard]] std::vector<Accusation> false_ends(const Membership& membership);

 private:
  bool steps_need_everybody_;
  std::optional<Step> last_step_;
  /// Of members that had done the last step and had not finished when most of the others had.
  std::map<MemberId, std::uint32_t> unfinished_views_;
};

// Disputes: members found that their states differ, or that two of them got different results for
// the same microbatch. All have stopped before anything was committed on top, and each says what it
// has, part by part. Accidents do not agree with each other, so what two independent members have
// in common is right. The odd one out is expelled; the sums of the others are kept.

/// What one member says that it has.
struct Witness {
  MemberId member{};
  std::vector<std::uint64_t> hashes;  ///< of the parts, in the same order for all
  /// False: it copied what it has from another witness, and has nothing of its own to say.
  bool is_independent = true;
  bool contradicts_itself = false;  ///< it computed the same thing twice and got different results
};

struct Verdict {
  bool decided = false;              ///< otherwise the reports do not show which state is right
  std::vector<MemberId> odd;         ///< those that are wrong, in the order of the witnesses
  std::vector<std::uint32_t> parts;  ///< in which the first of them differs
};

/// Right is what at least two independent witnesses report, and more of them than report anything
/// else; witnesses that contradict themselves do not count, and one is enough if all others do.
/// Every other witness is odd.
[[nodiscard]] Verdict odd_one_out(const std::vector<Witness>& witnesses);

struct DisputeVerdict {
  /// The reports do not show which state is right: why the job cannot continue.
  std::optional<std::string> deadlock;
  std::vector<MemberId> odd;  ///< whose state must not be used again, not by itself either
  std::string reason;         ///< of each of them
};

/// Judges the view whose members have all stopped. `part_names`: readable names of what each hash
/// of a disputed state covers; empty: its number is used. An empty verdict if there is no dispute,
/// or if some members were cut off before they could report: the next view compares everything
/// again.
[[nodiscard]] DisputeVerdict judge_dispute(const Membership& membership,
                                           const std::vector<std::string>& part_names);

}  // namespace mayfly::elastic
