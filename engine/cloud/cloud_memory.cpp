#include "engine/cloud/cloud_memory.hpp"

#include <cstddef>

#include "base/file.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::engine {

std::string cloud_memory_path(const std::string& run_dir) {
  return run_dir + "/cloud.json";
}

std::string print_cloud_memory(const CloudMemory& memory) {
  return json_text(object_of(memory)) + "\n";
}

std::optional<CloudMemory> read_cloud_memory(const std::string& run_dir) {
  constexpr std::size_t kBytesMax = 10'000;
  const Result<std::string> text = read_text_file(cloud_memory_path(run_dir), kBytesMax);
  std::optional<CloudMemory> memory;
  if (text.ok()) {
    (void)with_object("", text.value(), [&memory](const json::object& object) {
      memory = record_of<CloudMemory>(object);
    });
  }
  return memory;
}

}  // namespace mayfly::engine
