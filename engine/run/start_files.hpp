#pragma once

// What a command writes into a run directory before its job runs, so that one which is refused
// takes it away again.

#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace mayfly::engine {

class StartFiles {
 public:
  /// Looks which of these files and folders are there already, those on the way to the run
  /// directory included. To be made before any of them is written.
  StartFiles(const std::string& run_dir, const std::string& token_file);

  /// Removes those that were not there: files by their names, folders if nothing is left in them.
  /// So what was there stays as it is, and so does whatever the job's workers or somebody else have
  /// put there since, with the folders around it. Nobody else may be using the run directory.
  void take_back() const;

 private:
  std::vector<std::filesystem::path> files_;
  std::vector<std::filesystem::path> folders_;  // what is inside another comes before it
  std::filesystem::path curves_;  // of TensorBoard, whose files are named after the moment
  std::set<std::filesystem::path> old_curves_;
};

}  // namespace mayfly::engine
