#pragma once

// The file that new servers get: what a worker needs, packed by `mayfly bundle`.

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::cloud_hooks {

inline constexpr std::uint64_t kBundleBytesMax = std::uint64_t{4} << 30;

struct BundleFile {
  UniqueFd fd;              ///< stays what it was if another file takes the name
  std::uint64_t bytes = 0;  ///< of it, when it was opened
  std::string sha256;       ///< of them, in hexadecimal
};

/// Opens and hashes it. kNotFound, kIo; kInvalidInput for what is no file, empty, or larger than
/// kBundleBytesMax. Any thread.
[[nodiscard]] Result<BundleFile> open_bundle(const std::string& path);

}  // namespace mayfly::cloud_hooks
