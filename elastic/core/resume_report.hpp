#pragma once

// What a member that outlived its coordinator, or its connection to it, says of itself: whether it
// can be true, and what it adds until it has its place again. Pure.

#include <optional>

#include "elastic/core/messages.hpp"
#include "elastic/core/peer.hpp"

namespace mayfly::elastic {

/// It has a part in the view that it tells of; who joins again only had one.
[[nodiscard]] bool has_part(const Resume& resume);

/// The parts of the report of member `id` agree with each other. If not, it is to be ignored.
[[nodiscard]] bool makes_sense(MemberId id, const Resume& resume);

/// Names ids that no coordinator of an incarnation that it has accepted can have given it.
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

}  // namespace mayfly::elastic
