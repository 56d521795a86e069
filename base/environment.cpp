#include "base/environment.hpp"

#include <unistd.h>

namespace mayfly {

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (const std::size_t sign = text.find('='); sign != std::string::npos) {
      variables.emplace(text.substr(0, sign), text.substr(sign + 1));
    }
  }
  return variables;
}

}  // namespace mayfly
