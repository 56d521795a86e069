#include "engine/cloud/cloud_memory.hpp"

#include <algorithm>
#include <cstddef>

#include "base/file.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::engine {

std::string cloud_memory_path(const std::string& run_dir) {
  return run_dir + "/cloud.json";
}

std::string print_cloud_memory(const CloudMemory& memory) {
  return json::serialize(json::object{{"spent", memory.spent},
                                      {"per_hour", memory.per_hour},
                                      {"at", memory.at},
                                      {"workers", memory.workers}}) +
         "\n";
}

std::optional<CloudMemory> read_cloud_memory(const std::string& run_dir) {
  constexpr std::size_t kBytesMax = 10'000;
  const Result<std::string> text = read_text_file(cloud_memory_path(run_dir), kBytesMax);
  std::optional<CloudMemory> memory;
  if (text.ok()) {
    (void)with_object("", text.value(), [&memory](const json::object& object) {
      const double workers = std::clamp(number_or(object, "workers", 0), 0.0, 1e6);
      memory = CloudMemory{number_or(object, "spent", 0), number_or(object, "per_hour", 0),
                           number_or(object, "at", 0), static_cast<std::uint32_t>(workers)};
    });
  }
  return memory;
}

}  // namespace mayfly::engine
