#pragma once

// Copies a worker's checkpoints to the run directories of the coordinator and its standbys, where
// users look for them, on a thread of its own. An upload takes an eighth of the time between two
// checkpoints, so that the network is left to the gradients.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "engine/transfers/checkpoint_transfer.hpp"
#include "nn/checkpoint_files.hpp"

namespace mayfly::engine {

/// The pace of an upload while a job trains: it takes an eighth of the time between two
/// checkpoints. The newest one at the coordinator is then hardly older than at full speed, and 100
/// MB every five minutes need 2 % of a network of 1 Gbit/s, which gradients need too. The pace is
/// at most 64 MiB/s, because a job that writes checkpoints every few seconds would fill the
/// network, and at least 2 MiB/s, because otherwise the coordinator of a job that writes them once
/// a day would have none for hours. Pure; any thread.
[[nodiscard]] double upload_bytes_per_second(std::uint64_t bytes, Duration interval);

class CheckpointUploader {
 public:
  /// `endpoints`: of the coordinator and its standbys. Every checkpoint is sent to all of them,
  /// unless they lead another job than this one.
  CheckpointUploader(std::vector<std::string> endpoints, Bytes token, std::uint64_t job);
  /// Finishes a transfer in progress; gives up soon if no coordinator can be reached.
  ~CheckpointUploader();

  /// Sends the checkpoint in the background. Replaces one whose upload has not begun. Any thread.
  void upload(Step step, nn::CheckpointFiles files);
  /// From now on checkpoints are sent at full speed, or at the usual pace. Any thread.
  void set_urgent(bool is_urgent) { is_urgent_ = is_urgent; }

  /// Waits until a coordinator has the checkpoint of the last upload(), which is sent at full speed
  /// from now on. kRefused with the coordinator's reason; kAborted once `is_over` is true;
  /// kDeadline if no byte was sent for `patience`.
  [[nodiscard]] Result<void> wait(Duration patience, const std::function<bool()>& is_over);

 private:
  struct Item {
    Step step{};
    std::uint64_t number = 0;  ///< in the order of upload(), from 1
    nn::CheckpointFiles files;
    TransferOffer offer;
    double bytes_per_second = 0;
    std::vector<bool> is_done;  // of each endpoint
  };

  void run();
  void try_all(Item& item);
  [[nodiscard]] bool is_done(const Item& item) const;
  [[nodiscard]] Result<void> attempt(const std::string& endpoint, const Item& item);
  [[nodiscard]] Result<void> send_files(int fd, const Item& item, std::uint64_t first);

  const std::vector<std::string> endpoints_;
  const Bytes token_;
  const std::uint64_t job_;
  std::atomic<bool> is_urgent_{false};
  std::atomic<bool> is_closing_{false};
  std::atomic<Instant> last_sent_at_;  // when bytes were last sent

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::optional<Item> waiting_;
  // Items are identified by number, as a job may reach the same step again in another state; 0 =
  // none:
  std::uint64_t submitted_ = 0;  // the last item passed to upload()
  Instant submitted_at_;         // the time of that call, or of construction
  std::uint64_t delivered_ = 0;  // the last item that a coordinator has
  std::optional<Error> refused_;

  std::thread thread_;
};

}  // namespace mayfly::engine
