#pragma once

// A lock between processes: a file that one process locks (flock) until it ends, even if it is
// killed. The file also contains the process id, for messages only.

#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"

namespace mayfly {

/// The lock is held until this object is destroyed. A child process that was forked meanwhile also
/// holds it, so it is free when both have released it. One thread.
class LockFile {
 public:
  /// Creates the file and its parent folders if they do not exist, and locks it. kRefused, with the
  /// process id, if another process holds it for longer than `patience`; waiting is needed because
  /// a killed process releases it only when the kernel has freed its memory. kIo for other errors.
  [[nodiscard]] static Result<LockFile> take(const std::string& path,
                                             Duration patience = seconds(2));

  /// Writes this process's id into the file. take() does that for the calling process; sign() is
  /// for a forked child that received the lock.
  void sign() const;
  /// Removes the file and folders that take() created, if the folders are empty, and releases the
  /// lock. A process that waits for the lock creates them again.
  void discard() &&;

 private:
  explicit LockFile(std::string path) : path_(std::move(path)) {}
  [[nodiscard]] Result<void> open();
  [[nodiscard]] Result<void> make_folders();
  [[nodiscard]] bool is_in_place() const;

  std::string path_;
  UniqueFd fd_;
  bool made_file_ = false;
  std::vector<std::string> made_folders_;  // what is inside another comes after it
};

}  // namespace mayfly
