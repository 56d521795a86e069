#include "base/system_random.hpp"

#include <random>

namespace mayfly {

std::uint64_t system_random() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

}  // namespace mayfly
