#pragma once

// The bundle that new servers download: the program and its libraries, packed by `mayfly bundle`.

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::cloud_hooks {

inline constexpr std::uint64_t kBundleBytesMax = std::uint64_t{4} << 30;

struct BundleFile {
  UniqueFd fd;              ///< refers to the same file even if another one gets its name
  std::uint64_t bytes = 0;  ///< size when it was opened
  std::string sha256;       ///< hash of these bytes, in hexadecimal
};

/// Opens and hashes the file. kNotFound, kIo; kInvalidInput if it is not a regular file, empty, or
/// larger than kBundleBytesMax. Any thread.
[[nodiscard]] Result<BundleFile> open_bundle(const std::string& path);

}  // namespace mayfly::cloud_hooks
