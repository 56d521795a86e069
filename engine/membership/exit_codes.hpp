#pragma once

#include "base/result.hpp"

namespace mayfly::engine {

// Exit codes of Mayfly's processes.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;          ///< bad usage or configuration; nothing was computed
inline constexpr int kExitStopped = 3;        ///< stopped by the user, a checkpoint is written
inline constexpr int kExitTooFewWorkers = 4;  ///< fewer than --min-workers for too long

/// Prints "mayfly: REASON" on standard error, for an error that prevents a command from starting,
/// and returns `code`.
int refuse(const Error& error, int code);
/// The same in a process that has a log: the reason is logged.
int fail(const Error& error, int code);

}  // namespace mayfly::engine
