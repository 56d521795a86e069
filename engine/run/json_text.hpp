#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mayfly::engine {

/// Builds one JSON object on one line, fields in the order they are added.
class JsonObject {
 public:
  /// `json` is already JSON; see json_string and json_number in run_directory.hpp.
  JsonObject& add(std::string_view name, std::string_view json);
  [[nodiscard]] std::string text() const { return text_ + "}"; }

 private:
  std::string text_ = "{";
};

/// A JSON array of elements that are already JSON.
[[nodiscard]] std::string json_array(const std::vector<std::string>& elements);

}  // namespace mayfly::engine
