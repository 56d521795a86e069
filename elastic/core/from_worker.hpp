#pragma once

#include "elastic/core/messages.hpp"

namespace mayfly::elastic {

/// A member may say this after its handshake. The coordinator closes the connection of whoever says
/// anything else.
[[nodiscard]] bool is_from_worker(const Message& message);

}  // namespace mayfly::elastic
