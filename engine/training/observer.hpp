#pragma once

// The background work of a worker that is a member of a view but does not have its state yet (ADR
// 16). A separate thread receives the state of the step at which the view began, then applies to it
// the sums of the steps since, which the trainer puts into a queue. When all sums except the newest
// are applied, the observer has caught up and the trainer takes the state.
//
// The newest sum stays in the queue: if the view ends at that moment, perhaps no other member has
// it, and the step is computed again. When the next sum arrives, all members have the one before.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/net/wake_up.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "engine/state/state_transfer.hpp"
#include "engine/training/state_keeper.hpp"
#include "engine/training/step_means.hpp"

namespace mayfly::engine {

/// The source of the state.
struct StateSource {
  ViewId since{};
  std::uint64_t key = 0;
  Step committed{};  ///< the step after which that view began
  std::vector<DonorAddress> donors;
  Bytes token;  ///< of the job; decides whether connections are encrypted
};

/// The memory that an observer writes to. The kernel has to clear such memory first, which takes
/// long (0.2 s per 100 MB were seen), so a joining worker allocates it before members wait for it.
struct ObserverMemory {
  std::unique_ptr<ObservedState> state;
  PackedBytes packed;  ///< as large as every packed state of the job, each page touched
  std::vector<ObservedStep> blanks;
};
[[nodiscard]] ObserverMemory make_observer_memory(StateKeeper& state, const StepMeans& means);

class Observer {
 public:
  /// Called on the observer's thread when it has caught up with the last step added.
  using CaughtUpFunction = std::function<void(Step committed)>;

  /// `memory` was made by this worker's keeper, which outlives the observer. At most
  /// `queue_bytes_max` bytes of sums are kept, but always four steps.
  Observer(ObserverMemory memory, StateSource source, std::uint64_t queue_bytes_max,
           CaughtUpFunction on_caught_up);
  ~Observer();

  // Trainer thread:
  /// Memory for the sums of the next step, perhaps used before.
  [[nodiscard]] ObservedStep blank();
  /// Adds the sums of the step after the last one added; the first is the one after
  /// source.committed. Sums may still be added when the observer has caught up.
  void add(ObservedStep step);
  /// Sets the 31 bits of the hash of the state that is being sent, on which the members agreed.
  void expect(std::uint32_t state_check);
  /// Drops the newest sum if it is of a later step, which no member of the new view has committed.
  void resume_after(Step committed);
  /// The last step whose sum is kept or applied; 0 after a failure.
  [[nodiscard]] Step observed() const;
  [[nodiscard]] bool caught_up() const { return caught_up_; }
  /// After caught_up(), once: the keeper takes the state after observed().
  void hand_over();
  /// Why the state cannot be received, and since when.
  struct Failure {
    Error error;
    Instant at;
  };
  [[nodiscard]] std::optional<Failure> failure() const;
  [[nodiscard]] ViewId since() const { return source_.since; }

 private:
  void run();
  [[nodiscard]] Result<void> receive();
  [[nodiscard]] Result<void> compare_state();
  void replay();
  void fail_locked(Error error);
  void check_invariants() const;

  const StateSource source_;
  const std::uint64_t queue_bytes_max_;
  const CaughtUpFunction on_caught_up_;
  std::unique_ptr<ObservedState>
      state_;           // used by the thread until it has caught up, then by the trainer
  PackedBytes packed_;  // used by the thread only
  WakeUp stop_;         // notified when the thread is to end

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::deque<ObservedStep> queue_;
  std::vector<ObservedStep> blanks_;
  Step last_{};  // the last step whose sums were added and not dropped
  std::optional<std::uint32_t> expected_;
  std::optional<Failure> failure_;
  bool stopping_ = false;

  std::atomic<bool> caught_up_{false};
  std::thread thread_;
};

}  // namespace mayfly::engine
