#include "base/low_latency_thread.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace mayfly {
namespace {

/// What sched_getattr(2) and sched_setattr(2) share with the kernel; glibc 2.36 does not know it.
struct SchedulingAttributes {
  std::uint32_t size;
  std::uint32_t policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t runtime;  // of SCHED_OTHER: how long a turn is, in nanoseconds
  std::uint64_t deadline;
  std::uint64_t period;
};

}  // namespace

void use_low_latency_slice() {
  constexpr std::uint64_t kShortestTurn = 100'000;  // that the kernel grants
  SchedulingAttributes now{};
  if (::syscall(SYS_sched_getattr, 0, &now, sizeof now, 0) != 0 || now.policy != SCHED_OTHER) {
    return;  // who started us has other plans
  }
  now.size = sizeof now;
  now.runtime = kShortestTurn;
  // Older kernels ignore the turn; being refused changes nothing but speed.
  (void)::syscall(SYS_sched_setattr, 0, &now, 0);
}

void become_low_latency_thread(const char* name) {
  ::pthread_setname_np(::pthread_self(), name);
  use_low_latency_slice();
}

}  // namespace mayfly
