#pragma once

// What members say of themselves, held against what they can have: a worker that knows the token is
// trusted with its numbers, but not with the machine. Whoever contradicts itself, the view or the
// others is named here, with the reason, and evicted; nothing it says can stop the job. Pure.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "elastic/core/accusation.hpp"
#include "elastic/core/coordinator_options.hpp"
#include "elastic/core/membership.hpp"
#include "elastic/core/messages.hpp"

namespace mayfly::elastic {

/// Why this report of a member that is active in the present view cannot be true, whatever the
/// others say; nothing if it can.
[[nodiscard]] std::optional<std::string> inconsistency_in(const Stopped& stopped, MemberId id,
                                                          const Membership& membership);

/// Compares what all living members of a view that has ended say. To be asked when all have
/// stopped, before the next view; who is accused must be gone before the next question.
class ClaimJudge {
 public:
  explicit ClaimJudge(const CoordinatorOptions& options)
      : steps_need_everybody_(options.steps_need_everybody), last_step_(options.last_step) {}

  /// Who says of its step what cannot be true beside what the others say. An honest worker that
  /// went on alone, or was with those that the job has lost, is among them: it is welcome without
  /// that state, and would be evicted with it again and again.
  [[nodiscard]] std::vector<Accusation> false_steps(const Membership& membership) const;
  /// Who says that the job is over before its last step, and who never gets there although most of
  /// the others do. Once for each view that has ended.
  [[nodiscard]] std::vector<Accusation> false_ends(const Membership& membership);

 private:
  bool steps_need_everybody_;
  std::optional<Step> last_step_;
  /// Of members that had done the last step and had not finished when most of the others had.
  std::map<MemberId, std::uint32_t> unfinished_views_;
};

}  // namespace mayfly::elastic
