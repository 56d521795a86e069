#include "engine/cloud/cloud_memory.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cstddef>

#include "base/file.hpp"

namespace mayfly::engine {

std::string cloud_memory_path(const std::string& run_dir) {
  return run_dir + "/cloud.json";
}

std::string print_cloud_memory(const CloudMemory& memory) {
  return boost::json::serialize(boost::json::object{{"spent", memory.spent},
                                                    {"per_hour", memory.per_hour},
                                                    {"at", memory.at},
                                                    {"workers", memory.workers}}) +
         "\n";
}

std::optional<CloudMemory> read_cloud_memory(const std::string& run_dir) {
  constexpr std::size_t kBytesMax = 10'000;
  const Result<std::string> text = read_text_file(cloud_memory_path(run_dir), kBytesMax);
  if (!text.ok()) {
    return std::nullopt;
  }
  boost::json::error_code failure;
  const boost::json::value value = boost::json::parse(text.value(), failure);
  if (failure || !value.is_object()) {
    return std::nullopt;
  }
  const auto number = [&value](const char* name) {
    const boost::json::value* field = value.get_object().if_contains(name);
    return field != nullptr && field->is_number() ? field->to_number<double>() : 0.0;
  };
  const double workers = std::clamp(number("workers"), 0.0, 1e6);
  return CloudMemory{number("spent"), number("per_hour"), number("at"),
                     static_cast<std::uint32_t>(workers)};
}

}  // namespace mayfly::engine
