#pragma once

// Whether the ranks of a launcher that are on several hosts share a run directory. Each one but
// rank 0 leaves a mark in it once it finds there what rank 0 has made, and rank 0 looks for the
// marks. A rank that finds nothing says so after a few seconds, and gives up after twenty.

#include <string>

#include "base/result.hpp"
#include "engine/launch/launched_by.hpp"

namespace mayfly::engine {

/// Of rank 0, which holds the lock of the run directory: until all others have left their marks,
/// which are removed then, as those of an earlier launch are first. kInvalidInput with what to do
/// if some are missing.
[[nodiscard]] Result<void> wait_for_marks(const std::string& run_dir, const LaunchedBy& self);

/// Of every other rank: until rank 0 has removed the mark. kInvalidInput with what to do if rank 0
/// has no such directory.
[[nodiscard]] Result<void> leave_mark(const std::string& run_dir, const LaunchedBy& self);

/// Why ranks that share no files cannot meet, and what to do about it. Pure.
[[nodiscard]] std::string text_of_nothing_shared(const std::string& run_dir, const LaunchedBy& self,
                                                 const std::string& host_name);

}  // namespace mayfly::engine
