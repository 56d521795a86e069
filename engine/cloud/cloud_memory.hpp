#pragma once

// RUN_DIR/cloud.json: the facts that a coordinator stores for the next one of its job. Any thread.

#include <cstdint>
#include <optional>
#include <string>

namespace mayfly::engine {

/// The facts from which a later coordinator of the job continues: the cost of servers, and the
/// number of workers that was requested last.
struct CloudMemory {
  double spent = 0;
  double per_hour = 0;
  double at = 0;  ///< seconds since 1970
  std::uint32_t workers = 0;

  static void fields(auto& io, auto& r) {
    io("spent", r.spent);
    io("per_hour", r.per_hour);
    io("at", r.at);
    io("workers", r.workers);
  }
};
[[nodiscard]] std::string cloud_memory_path(const std::string& run_dir);
[[nodiscard]] std::string print_cloud_memory(const CloudMemory& memory);
/// Nothing if there is no such file, or if it is not valid.
[[nodiscard]] std::optional<CloudMemory> read_cloud_memory(const std::string& run_dir);

}  // namespace mayfly::engine
