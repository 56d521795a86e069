#pragma once

// What follows when members of a view found that their states, or their results, differ: everybody
// has stopped before anything was committed on top, and said what it has. The odd one out is
// expelled; the sums of the others are kept. Pure.

#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "elastic/core/membership.hpp"

namespace mayfly::elastic {

struct DisputeVerdict {
  /// Nobody can say who is right: why the job cannot go on.
  std::optional<std::string> deadlock;
  std::vector<MemberId> odd;  ///< whose state must not be used again, not by itself either
  std::string reason;         ///< of each of them
};

/// Of the view whose members have all stopped. `part_names` says what each hash of a disputed state
/// is of, for people; empty = the number must do. An empty verdict if there is no dispute, or if
/// some members were cut off before they could speak: the next view compares everything once more.
[[nodiscard]] DisputeVerdict judge_dispute(const Membership& membership,
                                           const std::vector<std::string>& part_names);

}  // namespace mayfly::elastic
