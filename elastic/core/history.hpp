#pragma once

// Lines about what the machines were told and what they decided, in one form for the simulator's
// histories and for the product's flight recorders: "12.345 ms: evicted 3 silent for ...". Events
// that come all the time and change nothing (ticks, heartbeats, progress, reports) have no line.
// Pure.

#include <optional>
#include <string>
#include <string_view>

#include "elastic/core/coordinator.hpp"
#include "elastic/core/member.hpp"

namespace mayfly::elastic {

/// One line: the time since some start, a word, perhaps a member, and what there is to say.
[[nodiscard]] std::string history_line(Duration since_start, std::string_view word,
                                       std::optional<MemberId> member, std::string_view detail);

/// One line about an event or effect of a machine; empty for those that have none.
[[nodiscard]] std::string history_line(Duration since_start, const CoordinatorEvent& event);
[[nodiscard]] std::string history_line(Duration since_start, const CoordinatorEffect& effect);
[[nodiscard]] std::string history_line(Duration since_start, const MemberEvent& event);
[[nodiscard]] std::string history_line(Duration since_start, const MemberEffect& effect);

}  // namespace mayfly::elastic
