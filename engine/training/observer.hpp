#pragma once

// What a worker does that takes part in a view but does not hold its state yet (ADR 16). A thread
// of its own receives the state of the step at which the view began, then applies to it the sums of
// the steps since, which the trainer puts into a queue. When all but the newest are applied, it has
// caught up and the trainer takes over.
//
// The newest sum stays in the queue: if the view ends right then, it may turn out that nobody else
// has it, and the step is computed again. Once the next sum is there, everybody has the one before.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "base/net/wake_up.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "engine/state/packed_bytes.hpp"
#include "engine/state/state_transfer.hpp"
#include "engine/training/commit.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

/// Where the state comes from.
struct StateSource {
  ViewId since{};
  std::uint64_t key = 0;
  Step committed{};  ///< of that view
  std::vector<DonorAddress> donors;
  Bytes token;  ///< of the job: says whether connections are encrypted
};

/// What an observer writes to. Memory that the kernel has to clear first takes long to get (0.2 s
/// per 100 MB were seen), so whoever is going to join a job gets it before the members wait for it.
struct ObserverMemory {
  /// With the layout of `like`. Touches every page.
  ObserverMemory(const nn::ModelState& like, const Committer& committer);

  nn::ModelState state;
  PackedBytes packed;
  std::vector<ObservedStep> blanks;
};

class Observer {
 public:
  /// Called on the observer's thread when it has caught up with the last step added.
  using CaughtUpFunction = std::function<void(Step committed)>;

  /// `memory` is for a state with the layout of the one that will come. `committer` must outlive
  /// the observer. At most `queue_bytes_max` bytes of sums are kept, but always four steps.
  Observer(ObserverMemory memory, const Committer& committer, StateSource source,
           std::uint64_t queue_bytes_max, CaughtUpFunction on_caught_up);
  ~Observer();

  // Trainer thread:
  /// Room for the next step's sums, perhaps used before.
  [[nodiscard]] ObservedStep blank();
  /// The step after the last one added; the first is the one after source.committed. The sums may
  /// still be added when it has caught up.
  void add(ObservedStep step);
  /// 31 bits of the hash of the state that comes, as the members agreed on them.
  void expect(std::uint32_t state_check);
  /// Forgets the newest sum if it is of a later step: no member of the new view has committed it.
  void resume_after(Step committed);
  /// The last step whose sum is kept or applied; 0 after a failure.
  [[nodiscard]] Step observed() const;
  [[nodiscard]] bool caught_up() const { return caught_up_; }
  /// After caught_up(): the state after observed().
  [[nodiscard]] nn::ModelState take_state();
  /// Why the state will not come, and since when.
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

  const Committer& committer_;
  const StateSource source_;
  const std::uint64_t queue_bytes_max_;
  const CaughtUpFunction on_caught_up_;
  nn::ModelState state_;  // the thread's until it has caught up, then the trainer's
  PackedBytes packed_;    // the thread's
  WakeUp stop_;           // notified when the thread is to end

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::deque<ObservedStep> queue_;
  std::vector<ObservedStep> blanks_;
  Step last_{};  // added, and not forgotten
  std::optional<std::uint32_t> expected_;
  std::optional<Failure> failure_;
  bool stopping_ = false;

  std::atomic<bool> caught_up_{false};
  std::thread thread_;
};

}  // namespace mayfly::engine
