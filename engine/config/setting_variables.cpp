#include "engine/config/setting_variables.hpp"

#include <cctype>
#include <string_view>

#include "base/environment.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

std::vector<std::string> setting_variables() {
  constexpr std::string_view kPrefixOfSettings = "MAYFLY_";
  std::vector<std::string> names;
  for (const auto& [variable, value] : environment()) {
    if (!variable.starts_with(kPrefixOfSettings)) {
      continue;
    }
    std::string setting = variable.substr(kPrefixOfSettings.size());
    for (char& c : setting) {  // apply_environment() takes any case
      c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    if (find_setting(setting) != nullptr) {
      names.emplace_back(variable);
    }
  }
  return names;
}

}  // namespace mayfly::engine
