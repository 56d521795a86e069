#pragma once

// Ids of requests, in a form that every provider accepts as an idempotency key.

#include <cstdint>
#include <string>

#include "base/random.hpp"

namespace mayfly::cloud_hooks {

/// The UUID (version 4, lower case) with that number in the sequence of `random`. Sequences of
/// different keys have no ids in common, so each start of a coordinator uses a new key.
[[nodiscard]] std::string make_request_id(const CounterRandom& random, std::uint64_t number);

/// Whether the text has the form of a UUID that is not zero.
[[nodiscard]] bool is_request_id(const std::string& text);

}  // namespace mayfly::cloud_hooks
