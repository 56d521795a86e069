#pragma once

// Checks of invariants. They stay on in release builds, because a broken invariant in a training
// engine means wrong gradients, and stopping costs less. Never use them for input; see
// base/result.hpp.

namespace mayfly {

/// Prints the failed condition with its place and reason on standard error and aborts.
[[noreturn]] void check_failed(const char* condition, const char* why, const char* file, int line);

}  // namespace mayfly

/// Aborts unless `condition` holds. `why` is one sentence for the reader of the message.
#define ENSURE(condition, why)                                       \
  do {                                                               \
    if (!(condition)) [[unlikely]] {                                 \
      ::mayfly::check_failed(#condition, (why), __FILE__, __LINE__); \
    }                                                                \
  } while (false)

/// Marks a place that control flow cannot reach.
#define UNREACHABLE(why) ::mayfly::check_failed("unreachable", (why), __FILE__, __LINE__)
