#pragma once

// Names for requests, in the form that every provider takes as an idempotency key.

#include <cstdint>
#include <string>

#include "base/random.hpp"

namespace mayfly::cloud_hooks {

/// The UUID (version 4, lower case) with that number in the sequence of `random`. Sequences of
/// different keys do not meet, so a coordinator that was started again draws a new key.
[[nodiscard]] std::string make_request_id(const CounterRandom& random, std::uint64_t number);

/// Whether the text has the form of a UUID that is not zero.
[[nodiscard]] bool is_request_id(const std::string& text);

}  // namespace mayfly::cloud_hooks
