#include "base/thread_priority.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace mayfly {
namespace {

/// The argument of sched_getattr(2) and sched_setattr(2), which glibc 2.36 does not declare.
struct SchedulingAttributes {
  std::uint32_t size;
  std::uint32_t policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t runtime;  // with SCHED_OTHER: length of a time slice in nanoseconds
  std::uint64_t deadline;
  std::uint64_t period;
};

}  // namespace

void use_low_latency_slice() {
  constexpr std::uint64_t kShortestTurn = 100'000;  // nanoseconds; the kernel grants no less
  SchedulingAttributes now{};
  if (::syscall(SYS_sched_getattr, 0, &now, sizeof now, 0) != 0 || now.policy != SCHED_OTHER) {
    return;  // the process that started this one has set another policy on purpose
  }
  now.size = sizeof now;
  now.runtime = kShortestTurn;
  // Older kernels ignore the length of the slice. A failure only affects speed.
  (void)::syscall(SYS_sched_setattr, 0, &now, 0);
}

void become_low_latency_thread(const char* name) {
  ::pthread_setname_np(::pthread_self(), name);
  use_low_latency_slice();
}

void run_with_low_priority() {
  constexpr int kNice = 10;
  // Linux counts niceness by thread. If the call is refused, only speed is affected.
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);
}

}  // namespace mayfly
