#include "base/thread_time.hpp"

#include <ctime>

namespace mayfly {

Instant thread_cpu_now() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return {static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec};
}

}  // namespace mayfly
