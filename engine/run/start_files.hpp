#pragma once

// The files that a command writes into a run directory before its job runs. If the job is refused,
// the command removes them again.

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/bytes.hpp"

namespace mayfly::engine {

class StartFiles {
 public:
  /// Notes which of these files and folders exist already. To be constructed when the run directory
  /// is locked and before any of them is written.
  StartFiles(const std::string& run_dir, const std::string& token_file);

  /// Keeps the contents of files of an ended part of the job that the new part will overwrite or
  /// extend. To be called before they change, but only when the directory is known to be this
  /// job's. Not for a job that is continued: its members may return, and their records must stay.
  void keep_contents();

  /// Renames a folder of an earlier part so that take_back() can restore it. Otherwise the
  /// destructor removes the folder.
  void set_aside(const std::string& folder);

  /// Removes the files that did not exist before, and the folders if they are empty then. Restores
  /// the contents of files that were kept. Files that existed before stay as they were, and so do
  /// those that workers or other programs have created since, with the folders around them. The run
  /// directory must still be locked.
  void take_back();
  ~StartFiles();
  StartFiles(const StartFiles&) = delete;
  StartFiles& operator=(const StartFiles&) = delete;

 private:
  std::filesystem::path run_;
  std::vector<std::filesystem::path> files_;
  std::vector<std::filesystem::path> folders_;  // inner folders come before outer ones
  std::filesystem::path curves_;                // of TensorBoard, whose file names contain the time
  std::set<std::filesystem::path> old_curves_;
  std::map<std::filesystem::path, Bytes> contents_;        // of files that are written anew
  std::map<std::filesystem::path, std::uintmax_t> sizes_;  // of those that only grow
  std::filesystem::path moved_folder_;                     // a folder; empty = none
};

}  // namespace mayfly::engine
