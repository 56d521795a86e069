#pragma once

// A worker writes its position here, and its sentinel reads it from outside. It lies in memory that
// the two processes share, so it contains only atomics. A write costs two relaxed stores and an
// addition. A reader may see parts of two consecutive positions, which is enough for a diagnosis.

#include <array>
#include <atomic>
#include <cstdint>

#include "elastic/core/messages.hpp"

namespace mayfly::elastic {

class ProgressBoard {
 public:
  /// The trainer begins another activity. Trainer thread.
  void enter(Activity activity, Step step, std::uint32_t bucket = kNoPart);
  /// Compute thread `thread` begins this microbatch: kLoad, kCompute or kEvaluate. That thread.
  void compute(std::uint32_t thread, Activity activity, std::uint32_t microbatch);
  /// The thread has computed this bucket's gradients of its microbatch. Called by that thread.
  void passed(std::uint32_t thread, std::uint32_t bucket);
  /// The thread has nothing to do. Called by that thread.
  void rest(std::uint32_t thread);

  /// The worker's position. If the trainer waits for its compute threads, it is the position of the
  /// thread that has made no progress for the longest time. Any thread or process.
  [[nodiscard]] WorkerPosition position() const;

 private:
  static constexpr std::size_t kThreads = 64;  // further threads share the places
  /// One word contains the activity (kIdle: none) with its step, microbatch and bucket; the other
  /// one the count of completed work when that was written.
  struct Place {
    std::atomic<std::uint64_t> word{0};
    std::atomic<std::uint64_t> moves{0};
  };
  void put(Place& place, std::uint64_t word);

  std::atomic<std::uint64_t> moves_{0};
  Place trainer_;
  std::array<Place, kThreads> threads_{};
};

}  // namespace mayfly::elastic
