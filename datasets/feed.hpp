#pragma once

// The port through which the trainer has samples prepared before they are computed: it announces
// microbatches by number and asks how long threads have waited for them. The computer takes the
// microbatches in a way of its own. Loader implements the port for the built-in data sets.

#include <cstdint>
#include <span>

#include "base/time.hpp"

namespace mayfly::datasets {

/// The time for which computing threads waited for a microbatch or prepared it themselves.
struct LoaderWait {
  Duration fetch{};  ///< the time that they would not have waited if images were in memory
  Duration prep{};   ///< the rest: images were decoded and augmented, or no thread had time for it

  [[nodiscard]] Duration total() const { return fetch + prep; }
};

/// The work of loading microbatches, since the start. Images that are used again
/// (LoaderOptions::reuse_images) do not count.
struct LoaderWork {
  std::uint64_t microbatches = 0;
  std::uint64_t bytes = 0;  ///< bytes of their images that were read from storage
  Duration fetch{};         ///< wall time of reading files; a tar is read while it is decoded
  Duration prep{};          ///< processor time
};

/// How microbatches are prepared; recorded together with the work.
struct FeedSettings {
  std::uint32_t threads = 0;       ///< preparing threads; 0 = the taking thread prepares
  std::uint32_t takers = 1;        ///< threads that take at the same time
  std::uint32_t prefetch_max = 0;  ///< upper bound on microbatches prepared ahead
  bool yield_cores = false;        ///< the preparing threads have low priority
};

/// Any thread.
class Feed {
 public:
  virtual ~Feed() = default;

  /// Announces microbatches that will be taken, in this order. Only as many are prepared ahead as
  /// there is room for; the others wait until one is taken. Does not block. If a microbatch cannot
  /// be prepared, the error is returned when it is taken.
  virtual void request(std::uint64_t step, std::span<const std::uint32_t> microbatches) = 0;
  /// Cancels all requests that are not taken, because the assignment changed.
  virtual void cancel_requests() = 0;
  /// The time since the start, of all threads that take microbatches together.
  [[nodiscard]] virtual LoaderWait time_waited() const = 0;
  /// The work since the start, including microbatches that were prepared by the threads that took
  /// them.
  [[nodiscard]] virtual LoaderWork work() const = 0;
  [[nodiscard]] virtual FeedSettings settings() const = 0;
};

}  // namespace mayfly::datasets
