#pragma once

// Copies the checkpoints of a run directory to a second place (--checkpoint-to) in the background:
// into a folder, for example one on a mounted file system, or with a command of the user's.

#include <condition_variable>
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

namespace mayfly::engine {

/// The destination that --checkpoint-to names: a folder or a command.
struct CopyTarget {
  std::string folder;   ///< FOLDER/<name of the run directory>, laid out as in a run directory
  std::string command;  ///< contains {} and {name} for the folder and the name of a checkpoint
};

/// A setting that contains {} is a command, any other one a folder.
[[nodiscard]] CopyTarget copy_target_of(const JobConfig& config);

/// Checks that a folder can be created and written, and, unless `fingerprint` is empty, that it
/// contains no checkpoint of another job. A command is not checked. kInvalidInput.
[[nodiscard]] Result<void> check_copy_target(const CopyTarget& target,
                                             const Fingerprint& fingerprint);

class CheckpointCopier {
 public:
  struct Hooks {
    /// `where`: the copy's folder, or the command. Called on the copier's thread.
    std::function<void(Step, const std::string& where, Duration took)> on_copied;
    std::function<void(const std::string& why)> on_failed;
  };

  CheckpointCopier(const JobConfig& config, Hooks hooks);
  /// Does not begin another attempt; waits for the present one.
  ~CheckpointCopier();

  /// Copies the checkpoint in this folder in the background, and tries again until that succeeds.
  /// Replaces the checkpoint of the previous call if that is not copied yet, even if it is of a
  /// later step: a job that has fallen back continues from this one. Any thread.
  void copy(Step step, const std::string& folder);

  /// Waits until the last checkpoint passed to copy() is copied. After three failed attempts from
  /// now on, returns the failure of the third.
  [[nodiscard]] Result<void> finish();

 private:
  struct Item {
    Step step{};
    std::string folder;
    Digest manifest;  ///< of its content: a job may reach the same step again in another state
    friend bool operator==(const Item&, const Item&) = default;
  };

  void run();
  [[nodiscard]] Result<std::string> attempt(const Item& item) const;
  [[nodiscard]] Result<std::string> copy_into_folder(const Item& item) const;
  [[nodiscard]] Result<std::string> run_command(const Item& item) const;

  const CopyTarget target_;
  const std::string run_dir_;
  const std::uint32_t keep_;
  const Hooks hooks_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::optional<Item> wanted_;  // the last checkpoint given, until it is copied
  std::optional<int> attempts_left_;
  std::optional<Error> failure_;  // of the last attempt
  bool is_closing_ = false;

  std::thread thread_;
};

}  // namespace mayfly::engine
