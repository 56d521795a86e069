#pragma once

namespace mayfly::engine {

// What a process of Mayfly returns to its caller.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;          ///< bad usage or configuration; nothing was started
inline constexpr int kExitStopped = 3;        ///< stopped by the user, a checkpoint is written
inline constexpr int kExitTooFewWorkers = 4;  ///< fewer than --min-workers for too long

}  // namespace mayfly::engine
