#pragma once

// What a command writes into a run directory before its job runs, so that one which is refused
// takes it away again.

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
  /// Looks which of these files and folders are there already. To be made when the run directory is
  /// locked and before any of them is written.
  StartFiles(const std::string& run_dir, const std::string& token_file);

  /// Keeps what the run directory of an ended part of the job holds and this one will write over or
  /// add to. To be called before that, but not before the directory is surely ours; and not for a
  /// job that goes on: its members may return, and what is then on record must stay.
  void keep_contents();

  /// Gives a folder of an earlier part another name, for take_back(). Else it goes with this.
  void set_aside(const std::string& folder);

  /// Removes those that were not there: files by their names, folders if nothing is left in them.
  /// Restores the contents of files that were kept. Files that existed before stay as they were,
  /// and so do those that workers or other programs have created since, with the folders around
  /// them. The run directory must still be locked.
  void take_back();
  ~StartFiles();
  StartFiles(const StartFiles&) = delete;
  StartFiles& operator=(const StartFiles&) = delete;

 private:
  std::filesystem::path run_;
  std::vector<std::filesystem::path> files_;
  std::vector<std::filesystem::path> folders_;  // what is inside another comes before it
  std::filesystem::path curves_;  // of TensorBoard, whose files are named after the moment
  std::set<std::filesystem::path> old_curves_;
  std::map<std::filesystem::path, Bytes> contents_;        // of files that are written anew
  std::map<std::filesystem::path, std::uintmax_t> sizes_;  // of those that only grow
  std::filesystem::path aside_;                            // a folder; empty = none
};

}  // namespace mayfly::engine
