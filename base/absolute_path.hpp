#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace mayfly {

/// The path from the root, without "." and "..", that `path` stands for in the present working
/// directory; `path` itself if that directory does not exist any more. Any thread.
[[nodiscard]] inline std::string absolute_path(const std::string& path) {
  std::error_code failure;
  const std::filesystem::path whole = std::filesystem::absolute(path, failure);
  return failure ? path : whole.lexically_normal().string();
}

}  // namespace mayfly
