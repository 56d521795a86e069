#pragma once

// Whether a coordinator lets in a new worker, or a member that comes back, and why not. Pure
// functions of what it knows.

#include <cstdint>
#include <optional>
#include <string>

#include "elastic/core/coordinator_events.hpp"
#include "elastic/core/membership.hpp"
#include "elastic/core/messages.hpp"
#include "elastic/core/term.hpp"

namespace mayfly::elastic {

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
