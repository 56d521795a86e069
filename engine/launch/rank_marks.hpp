#pragma once

// Whether the ranks of a launcher that are on several hosts share a run directory. Each rank but
// rank 0 leaves a mark in the directory once it finds the folder that rank 0 creates there, and
// rank 0 waits for the marks. A rank that finds nothing logs a warning after a few seconds and
// fails after twenty.

#include <string>

#include "base/result.hpp"
#include "engine/launch/launched_by.hpp"

namespace mayfly::engine {

/// Called on rank 0, which holds the lock of the run directory. Removes the marks of an earlier
/// launch, waits until all other ranks have left their marks, and removes these, too.
/// kInvalidInput, with advice, if some are missing.
[[nodiscard]] Result<void> wait_for_marks(const std::string& run_dir, const LaunchedBy& self);

/// Called on every other rank. Leaves a mark and waits until rank 0 has removed it. kInvalidInput,
/// with advice, if rank 0 has no such directory.
[[nodiscard]] Result<void> leave_mark(const std::string& run_dir, const LaunchedBy& self);

/// Why ranks that share no files cannot meet, and what to do about it. Pure.
[[nodiscard]] std::string text_of_nothing_shared(const std::string& run_dir, const LaunchedBy& self,
                                                 const std::string& host_name);

}  // namespace mayfly::engine
