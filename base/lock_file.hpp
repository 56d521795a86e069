#pragma once

// A lock between processes: a file that one of them holds (flock) until it ends, however it ends.
// It says who that is, for people; the lock is what counts.

#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"

namespace mayfly {

/// Held until it is destroyed. A child that was forked meanwhile holds it, too: it is free when
/// neither has it any more. One thread.
class LockFile {
 public:
  /// Makes the file, and the folders on the way to it, if they are not there. kRefused, naming the
  /// process, if another one holds it for longer than `patience` (a killed process lets go only
  /// when the kernel has torn it down); kIo.
  [[nodiscard]] static Result<LockFile> take(const std::string& path,
                                             Duration patience = seconds(2));

  /// Writes into the file that this process holds it; take() has done so for its own.
  void sign() const;
  /// Removes the file and the folders, as far as take() made them and nothing else is in them, and
  /// lets go. Whoever waits for the lock makes them anew.
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
