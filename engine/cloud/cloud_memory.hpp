#pragma once

// RUN_DIR/cloud.json: what a coordinator leaves to the next one of its job. Any thread.

#include <cstdint>
#include <optional>
#include <string>

namespace mayfly::engine {

/// What later processes of the same job go on from: the cost of servers, and how many workers were
/// asked for last.
struct CloudMemory {
  double spent = 0;
  double per_hour = 0;
  double at = 0;              ///< seconds since 1970
  std::uint32_t workers = 0;  ///< 0 = unknown, as in files of older versions
};
[[nodiscard]] std::string cloud_memory_path(const std::string& run_dir);
[[nodiscard]] std::string print_cloud_memory(const CloudMemory& memory);
/// Nothing if there is no such file, or it has another form.
[[nodiscard]] std::optional<CloudMemory> read_cloud_memory(const std::string& run_dir);

}  // namespace mayfly::engine
