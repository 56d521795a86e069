#pragma once

// A worker's checkpoints: a writer that does not stop the step, and an uploader that copies them to
// the coordinator's run directory, where users look for them. Each has a thread of its own; uploads
// take an eighth of the time between checkpoints, so that the network is left to the gradients.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.hpp"
#include "base/digest.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "engine/job/job.hpp"
#include "engine/run/records.hpp"
#include "engine/transfers/checkpoint_transfer.hpp"
#include "nn/checkpoint_files.hpp"

namespace mayfly::engine {

/// The pace of an upload while a job trains: it takes an eighth of the time between two
/// checkpoints, so that the newest one at home is hardly older than at full speed, and 100 MB every
/// five minutes need 2 % of a network of 1 Gbit/s, which the gradients need too. At most 64 MiB/s,
/// because a job that writes checkpoints every few seconds would fill the network, and at least 2
/// MiB/s, because one that writes them once a day would have none at home for hours. Pure; any
/// thread.
[[nodiscard]] double upload_bytes_per_second(std::uint64_t bytes, Duration interval);

class CheckpointUploader {
 public:
  /// `endpoints`: of the coordinator and its standbys, all of which get every checkpoint.
  CheckpointUploader(std::vector<std::string> endpoints, Bytes token);
  /// Goes on while what was given still makes its way; gives up soon where nobody listens.
  ~CheckpointUploader();

  /// Sends it in the background; replaces one that has not begun to travel. Any thread.
  void upload(Step step, nn::CheckpointFiles files);
  /// Whether it goes on without regard to the pace from now on. Any thread.
  void hurry(bool is_urgent) { is_urgent_ = is_urgent; }

  /// Waits until a coordinator has what was given last, from now on without regard to the pace.
  /// kRefused with the coordinator's reason; kAborted once `is_over` says so; kDeadline if nothing
  /// has moved for `patience`.
  [[nodiscard]] Result<void> wait(Duration patience, const std::function<bool()>& is_over);

 private:
  struct Item {
    Step step{};
    std::uint64_t number = 0;  ///< in the order in which they were given, from 1
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
  std::atomic<bool> is_urgent_{false};
  std::atomic<bool> is_closing_{false};
  std::atomic<Instant> moved_;  // when bytes were last taken from us

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::optional<Item> waiting_;
  // By their numbers, as a job may come to the same step again in another state; 0 = none:
  std::uint64_t given_ = 0;  // the last one
  Instant given_at_;         // or the beginning
  std::uint64_t home_ = 0;   // the last one that a coordinator has
  std::optional<Error> refused_;

  std::thread thread_;
};

/// Asks these coordinators what a worker should start with: a checkpoint, or nothing if what it has
/// is right. Again for up to a minute as long as none answers, and `gives_up` (asked in between)
/// does not say that this worker is to leave; then nothing. If the question needs a state, for up
/// to ten minutes; then kPeerLost, or kAborted if it is to leave. kRefused with the coordinator's
/// reason if what it has is wrong.
[[nodiscard]] Result<std::optional<nn::CheckpointFiles>> ask_for_better_state(
    const std::vector<std::string>& endpoints, ByteSpan token, const TransferQuestion& question,
    const std::function<bool()>& gives_up);

/// Writes checkpoints on a thread of its own, so that a slow disk does not stop the step. A failure
/// (disk full) is a record, and the first of its cause a warning; training goes on and the last
/// good checkpoint stays.
class CheckpointWriter {
 public:
  /// Told the outcome, on the writer's thread (or the caller's, for write_now).
  using Listener = std::function<void(const CheckpointRecord&)>;

  /// `folder` receives step-N folders; `uploader` is given what was written, and what could not be
  /// written here. Null: it stays here.
  CheckpointWriter(const Job& job, std::string folder, Listener listener,
                   CheckpointUploader* uploader);
  /// Waits for a write in progress.
  ~CheckpointWriter();

  /// Writes the checkpoint of this step in the background; replaces an older one that still waits.
  void write_later(Step committed, nn::CheckpointFiles files);
  /// Whether what is written travels to the coordinator at full speed from now on.
  void hurry(bool is_urgent);
  /// Writes it before returning, after any write in progress; not again if it is on disk already.
  /// Whether it is there now.
  bool write_now(Step committed, nn::CheckpointFiles files);
  /// Waits until the coordinator has what was written last, for `patience` after the last byte that
  /// moved. kAborted once `is_over` (asked several times a second) says so, kDeadline, kRefused.
  [[nodiscard]] Result<void> wait_until_home(Duration patience,
                                             const std::function<bool()>& is_over);

 private:
  struct Pending {
    nn::CheckpointFiles files;
    Step committed{};
    std::uint64_t order = 0;  ///< in which they were given: an earlier one must not be the latest
  };
  void run();
  bool write(Pending pending);

  const Job& job_;
  std::string folder_;
  Listener listener_;
  CheckpointUploader* const uploader_;  // null = none
  std::mutex write_mutex_;              // one write at a time
  std::optional<Step> last_written_;    // guarded by write_mutex_
  Digest last_manifest_;                // of its content; guarded by write_mutex_
  std::uint64_t order_written_ = 0;     // guarded by write_mutex_
  SaidFailure failures_;                // guarded by write_mutex_
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Pending> pending_;  // guarded by mutex_
  std::uint64_t given_ = 0;         // guarded by mutex_
  bool stopping_ = false;           // guarded by mutex_
  std::thread thread_;
};

}  // namespace mayfly::engine
