#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace mayfly {

/// The path from the root, without "." and "..": what it names from the folder that this process is
/// in now. The path itself if that folder is gone. Any thread.
[[nodiscard]] inline std::string absolute_path(const std::string& path) {
  std::error_code failure;
  const std::filesystem::path whole = std::filesystem::absolute(path, failure);
  return failure ? path : whole.lexically_normal().string();
}

}  // namespace mayfly
