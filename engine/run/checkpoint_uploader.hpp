#pragma once

// A worker's checkpoints on their way to the coordinator's run directory, where the user looks for
// them: on a thread of its own, at a pace that leaves the network to the gradients.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "engine/run/checkpoint_transfer.hpp"
#include "nn/checkpoint.hpp"

namespace mayfly::engine {

class CheckpointUploader {
 public:
  /// `endpoints`: of the coordinator and its standbys, all of which get every checkpoint.
  CheckpointUploader(std::vector<std::string> endpoints, Bytes token);
  /// Goes on while what was given still makes its way; gives up soon where nobody listens.
  ~CheckpointUploader();

  /// Sends it in the background; replaces one that has not begun to travel. Any thread.
  void upload(Step step, nn::CheckpointFiles files);

  /// Waits until a coordinator has what was given last, from now on without regard to the pace.
  /// kRefused with the coordinator's reason; kAborted once `is_over` says so; kDeadline if nothing
  /// has moved for `patience`.
  [[nodiscard]] Result<void> wait(Duration patience, const std::function<bool()>& is_over);

 private:
  struct Item {
    Step step{};
    nn::CheckpointFiles files;
    TransferOffer offer;
    std::vector<bool> is_done;  // of each endpoint
  };

  void run();
  void try_all(Item& item);
  [[nodiscard]] bool is_done(const Item& item) const;
  [[nodiscard]] Result<void> attempt(const std::string& endpoint, const Item& item);
  [[nodiscard]] Result<void> send_files(int fd, const Item& item, std::uint64_t first);
  [[nodiscard]] bool may_go_on();

  const std::vector<std::string> endpoints_;
  const Bytes token_;
  std::atomic<bool> is_urgent_{false};
  std::atomic<bool> is_closing_{false};
  std::atomic<Instant> moved_;  // when bytes were last taken from us

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::optional<Item> waiting_;
  std::optional<Step> given_;  // the last one
  std::optional<Step> home_;   // the last one that a coordinator has
  std::optional<Error> refused_;

  std::thread thread_;
};

/// Asks the first of these coordinators that answers what a worker should start with: a checkpoint,
/// or nothing if what it has is right. kRefused with the coordinator's reason if that is wrong.
[[nodiscard]] Result<std::optional<nn::CheckpointFiles>> ask_for_better_state(
    const std::vector<std::string>& endpoints, ByteSpan token, const TransferQuestion& question);

}  // namespace mayfly::engine
