#include "cli/calibration_folder.hpp"

#include <algorithm>
#include <filesystem>

#include "base/file.hpp"
#include "base/try_assign.hpp"

namespace mayfly::cli {
namespace {

constexpr std::size_t kTableBytesMax = 64 << 20;

}  // namespace

Result<CalibrationFolder> read_calibration(const std::string& folder) {
  std::error_code failure;
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator at(folder, failure), end; !failure && at != end;
       at.increment(failure)) {
    names.push_back(at->path().filename().string());
  }
  if (failure) {
    return Error{Errc::kNotFound, folder + ": " + failure.message()};
  }
  std::sort(names.begin(), names.end());
  CalibrationFolder found;
  for (const std::string& name : names) {
    if (!planner::is_calibration_file(name)) {
      if (name.ends_with(".csv")) {
        found.unknown.push_back(name);
      }
      continue;
    }
    TRY_ASSIGN(const std::string text, read_text_file(folder + "/" + name, kTableBytesMax));
    const Result<void> added = planner::add_table(name, text, found.calibration);
    if (!added.ok()) {
      return Error{added.error().code, folder + "/" + added.error().detail};
    }
    found.read.push_back(name);
  }
  if (found.read.empty()) {
    return Error{Errc::kNotFound, folder + ": has no table of measurements (docs/planner.md)"};
  }
  return found;
}

}  // namespace mayfly::cli
