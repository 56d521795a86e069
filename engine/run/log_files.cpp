#include "engine/run/log_files.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <utility>
#include <vector>

namespace mayfly::engine {

void keep_newest_logs(const std::string& run_dir, std::string_view prefix, std::size_t keep) {
  namespace fs = std::filesystem;
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(run_dir + "/logs", ignored)) {
    if (entry.path().filename().string().starts_with(prefix)) {
      files.emplace_back(entry.last_write_time(ignored), entry.path());
    }
  }
  std::sort(files.begin(), files.end(), std::greater<>());
  for (std::size_t i = keep; i < files.size(); ++i) {
    fs::remove(files[i].second, ignored);
  }
}

}  // namespace mayfly::engine
