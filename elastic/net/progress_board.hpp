#pragma once

// Where a worker writes what it does, for its sentinel to read from outside. Lives in the page that
// the two processes share, so it holds atomics only. Writing costs two relaxed stores and an
// addition; what is read is a diagnosis, and may mix two neighbouring moments.

#include <array>
#include <atomic>
#include <cstdint>

#include "elastic/core/messages.hpp"

namespace mayfly::elastic {

class ProgressBoard {
 public:
  /// The trainer turns to something else. Trainer thread.
  void enter(Activity activity, Step step, std::uint32_t bucket = kNoPart);
  /// Compute thread `thread` turns to this microbatch: kLoad, kCompute or kEvaluate. That thread.
  void compute(std::uint32_t thread, Activity activity, std::uint32_t microbatch);
  /// It has this bucket's gradients of its microbatch. That thread.
  void passed(std::uint32_t thread, std::uint32_t bucket);
  /// It has nothing to do. That thread.
  void rest(std::uint32_t thread);

  /// Where the worker stands: if the trainer waits for its compute threads, where the one stands
  /// that has not moved for the longest. Any thread or process.
  [[nodiscard]] WorkerPosition position() const;

 private:
  static constexpr std::size_t kThreads = 64;  // more share a place
  /// The activity (kIdle: none) and what it is about, in one word; and how much had been done when
  /// it was written.
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
