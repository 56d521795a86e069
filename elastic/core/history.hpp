#pragma once

// Readable lines about the events and effects of the state machines, in one form for the
// simulator's histories and for the product's flight recorders: "12.345 ms: evicted 3 silent for
// ...". Frequent events that change nothing (ticks, heartbeats, progress, reports) have no line.
// Pure; any thread.

#include <optional>
#include <string>
#include <string_view>

#include "elastic/core/coordinator.hpp"
#include "elastic/core/member.hpp"

namespace mayfly::elastic {

/// One line: the time since the history began, a word, perhaps a member, and a detail.
[[nodiscard]] std::string history_line(Duration since_start, std::string_view word,
                                       std::optional<MemberId> member, std::string_view detail);

/// One line about an event or effect of a machine; empty for those that have none.
[[nodiscard]] std::string history_line(Duration since_start, const CoordinatorEvent& event);
[[nodiscard]] std::string history_line(Duration since_start, const CoordinatorEffect& effect);
[[nodiscard]] std::string history_line(Duration since_start, const MemberEvent& event);
[[nodiscard]] std::string history_line(Duration since_start, const MemberEffect& effect);

}  // namespace mayfly::elastic
