#include "base/system_error.hpp"

#include <cstring>

namespace mayfly {

Error system_error(const std::string& what, int number, Errc code) {
  return {code, what + ": " + std::strerror(number)};
}

}  // namespace mayfly
