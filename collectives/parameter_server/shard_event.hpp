#pragma once

// What a message means to the machine behind a shard. Pure; any thread.

#include <cstdint>
#include <vector>

#include "collectives/parameter_server/core/shard_core.hpp"
#include "collectives/parameter_server/message.hpp"

namespace mayfly::parameter_server {

/// Of kHello, kPush, kPull, kRest and kHold; others have no meaning by themselves.
[[nodiscard]] ShardEvent event_of(const Header& header);

/// The payload of kRoster and kStragglers, and what it means. Nothing for other events.
[[nodiscard]] std::vector<std::uint64_t> words_of(const ShardEvent& event);
[[nodiscard]] ShardEvent roster_of(const std::vector<std::uint64_t>& words);
[[nodiscard]] ShardEvent stragglers_of(const std::vector<std::uint64_t>& words);

}  // namespace mayfly::parameter_server
