#pragma once

// Takes the checkpoints of a run directory to another place as well (--checkpoint-to), in the
// background: into a folder, such as one that is mounted from elsewhere, or by a command of the
// user's.

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

/// What --checkpoint-to says.
struct CopyTarget {
  std::string folder;   ///< FOLDER/<name of the run directory>, laid out as in a run directory
  std::string command;  ///< or this, with {} and {name} in place of a checkpoint's folder and name
};

/// A text with {} in it is a command, any other a folder.
[[nodiscard]] CopyTarget copy_target_of(const JobConfig& config);

/// Whether a folder can be made and written, and holds no checkpoint of another job (which is not
/// looked at if `fingerprint` is empty); a command is believed. kInvalidInput.
[[nodiscard]] Result<void> check_copy_target(const CopyTarget& target,
                                             const Fingerprint& fingerprint);

class CheckpointCopier {
 public:
  struct Hooks {
    /// `where`: the copy's folder, or the command. On the copier's thread.
    std::function<void(Step, const std::string& where, Duration took)> on_copied;
    std::function<void(const std::string& why)> on_failed;
  };

  CheckpointCopier(const JobConfig& config, Hooks hooks);
  /// Gives up what is under way as soon as it can.
  ~CheckpointCopier();

  /// Copies the checkpoint in this folder, again and again until it is there; replaces the one of
  /// the call before if that is not, also one of a later step: a job that has fallen back goes on
  /// from this one. Any thread.
  void copy(Step step, const std::string& folder);

  /// Waits until the newest is there. The failure of the third attempt from now on.
  [[nodiscard]] Result<void> finish();

 private:
  struct Item {
    Step step{};
    std::string folder;
    Digest manifest;  ///< of its content: a job may come to the same step again in another state
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
  std::optional<Item> wanted_;  // the newest, until it is there
  std::optional<int> attempts_left_;
  std::optional<Error> failure_;  // the last attempt's
  bool is_closing_ = false;

  std::thread thread_;
};

}  // namespace mayfly::engine
