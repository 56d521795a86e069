#include "base/time.hpp"

#include <ctime>

namespace mayfly {
namespace {

std::int64_t read_clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

Instant monotonic_now() {
  return {read_clock_ns(CLOCK_MONOTONIC)};
}

Instant thread_cpu_now() {
  return {read_clock_ns(CLOCK_THREAD_CPUTIME_ID)};
}

double wall_clock_seconds() {
  return static_cast<double>(read_clock_ns(CLOCK_REALTIME)) / 1e9;
}

}  // namespace mayfly
