#pragma once

// How fast one member computes, from what it reports about every 100 ms. A single hiccup (a frozen
// process, a full disk) must not change it, and time that is stolen again and again (a process that
// is stopped and continued, a throttled or shared core) must: so reports are averaged over samples
// that are long beside such a rhythm, and the answer is the median of the last few samples. Pure.

#include <cstddef>
#include <cstdint>
#include <deque>

#include "base/time.hpp"

namespace mayfly::elastic {

/// How long one sample is at least; longer if reports come less often.
inline constexpr Duration kSpeedSample = milliseconds(500);

class SpeedMeter {
 public:
  /// Since the last report the member computed so many microbatches, in so many milliseconds each
  /// (wall time, whatever it was spent on; of all its threads together). Reports without a time are
  /// ignored. Instants never go back.
  void add(Instant now, float microbatch_ms, std::uint32_t microbatches,
           Duration sample = kSpeedSample);
  /// The median of the last samples once there are three; 0 before.
  [[nodiscard]] float settled_ms() const;
  /// settled_ms(), or what is known so far; 0 = nothing.
  [[nodiscard]] float best_ms() const;

 private:
  struct Sample {
    double total_ms = 0;
    std::uint64_t microbatches = 0;

    [[nodiscard]] float mean() const {
      return static_cast<float>(total_ms / static_cast<double>(microbatches));
    }
  };

  std::deque<Sample> samples_;  // complete, the oldest first
  Sample open_;
  Instant opened_;
};

}  // namespace mayfly::elastic
