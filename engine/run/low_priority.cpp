#include "engine/run/low_priority.hpp"

#include <sys/resource.h>
#include <unistd.h>

namespace mayfly::engine {

void run_with_low_priority() {
  constexpr int kNice = 10;
  // Linux counts niceness by thread. Being refused changes nothing but speed.
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);
}

}  // namespace mayfly::engine
