#pragma once

// Time as a value. Pure code receives an Instant as an argument; only adapters read a clock.

#include <chrono>
#include <compare>
#include <cstdint>

namespace mayfly {

using Duration = std::chrono::nanoseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// A point on a monotonic clock, in nanoseconds since an arbitrary start. Comparable only with
/// instants of the same clock.
struct Instant {
  std::int64_t ns = 0;

  friend constexpr auto operator<=>(Instant, Instant) = default;
  friend constexpr Instant operator+(Instant t, Duration d) { return {t.ns + d.count()}; }
  friend constexpr Instant operator-(Instant t, Duration d) { return {t.ns - d.count()}; }
  friend constexpr Duration operator-(Instant a, Instant b) { return Duration(a.ns - b.ns); }
};

inline constexpr double kSecondsPerHour = 3600;

/// Milliseconds with fraction, for records and messages.
[[nodiscard]] constexpr double to_ms(Duration d) {
  return static_cast<double>(d.count()) / 1e6;
}
[[nodiscard]] constexpr double to_seconds(Duration d) {
  return static_cast<double>(d.count()) / 1e9;
}

/// The machine's monotonic clock (CLOCK_MONOTONIC: equal for all processes of one host). Adapters
/// only; pure code must be given its instants.
[[nodiscard]] Instant monotonic_now();
/// Processor time that the calling thread has used. It does not advance while the thread waits, is
/// stopped, or is not scheduled. Comparable only within one thread. For adapters only.
[[nodiscard]] Instant thread_cpu_now();
/// Wall-clock seconds since 1970. For records only: no decision may depend on it.
[[nodiscard]] double wall_clock_seconds();

}  // namespace mayfly
