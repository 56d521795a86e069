#include "base/usable_cores.hpp"

#include <sched.h>

namespace mayfly {

std::uint32_t usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0
             ? static_cast<std::uint32_t>(CPU_COUNT(&cores))
             : 0;
}

}  // namespace mayfly
