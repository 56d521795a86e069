#pragma once

// Writes a worker's checkpoints in the background.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/digest.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "engine/job/job.hpp"
#include "engine/run/records.hpp"
#include "engine/transfers/checkpoint_uploader.hpp"
#include "nn/checkpoint_files.hpp"

namespace mayfly::engine {

/// Writes checkpoints on a thread of its own, so that a slow disk does not delay a step. Every
/// failure (such as a full disk) is recorded, and the first one of its cause also logged as a
/// warning. Training continues, and the last good checkpoint is kept.
class CheckpointWriter {
 public:
  /// Called with the outcome of each write, on the writer's thread or, by write_now(), the
  /// caller's.
  using Listener = std::function<void(const CheckpointRecord&)>;

  /// `folder` receives step-N folders. Checkpoints are also passed to `uploader`, even if they
  /// could not be written to the disk. Null: they are only written.
  CheckpointWriter(const Job& job, std::string folder, Listener listener,
                   CheckpointUploader* uploader);
  /// Waits for a write in progress.
  ~CheckpointWriter();

  /// Writes the checkpoint of this step in the background; replaces an older one that still waits.
  void write_later(Step committed, nn::CheckpointFiles files);
  /// From now on checkpoints are sent to the coordinator at full speed, or at the usual pace.
  void set_urgent(bool is_urgent);
  /// Writes the checkpoint before returning, after any write in progress, unless it is already on
  /// disk. Returns whether it is on disk.
  bool write_now(Step committed, nn::CheckpointFiles files);
  /// Waits until the coordinator has the checkpoint that was written last. kDeadline if no byte was
  /// sent for `patience`; kAborted once `is_over`, which is called several times a second, is true;
  /// kRefused by the coordinator.
  [[nodiscard]] Result<void> wait_until_uploaded(Duration patience,
                                                 const std::function<bool()>& is_over);

 private:
  struct Pending {
    nn::CheckpointFiles files;
    Step committed{};
    std::uint64_t order = 0;  ///< number of the request: an older one must not become the latest
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
  ReportedFailure failures_;            // guarded by write_mutex_
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Pending> pending_;  // guarded by mutex_
  std::uint64_t given_ = 0;         // guarded by mutex_
  bool stopping_ = false;           // guarded by mutex_
  std::thread thread_;
};

}  // namespace mayfly::engine
