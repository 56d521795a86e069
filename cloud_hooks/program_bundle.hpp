#pragma once

// Packs this program for machines that have neither it nor its libraries.

#include <string>

#include "base/result.hpp"

namespace mayfly::cloud_hooks {

/// Writes a gzipped tar with one folder, `mayfly`, in which the script `mayfly` starts this program
/// with the shared libraries that it has loaded, but for those of the C library, which belong to
/// the machine's kernel loader: it needs a glibc that is no older than ours. The same files give
/// the same archive. Needs tar and gzip; debugging information is left out where strip is there.
/// kIo with the reason; nothing half-written is left. Takes some ten seconds. Any thread.
[[nodiscard]] Result<void> pack_own_program(const std::string& output);

/// The archive of this program in `folder`, which is made if need be; packed anew only when the
/// program or a library has changed.
[[nodiscard]] Result<std::string> packed_own_program(const std::string& folder);

}  // namespace mayfly::cloud_hooks
