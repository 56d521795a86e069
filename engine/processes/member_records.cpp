#include "engine/processes/member_records.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <utility>
#include <vector>

namespace mayfly::engine {

void prune_member_records(const std::string& run_dir, std::size_t keep) {
  namespace fs = std::filesystem;
  std::vector<std::pair<fs::file_time_type, fs::path>> records;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(run_dir + "/logs", ignored)) {
    if (entry.path().filename().string().starts_with("flight-member-")) {
      records.emplace_back(entry.last_write_time(ignored), entry.path());
    }
  }
  std::sort(records.begin(), records.end(), std::greater<>());
  for (std::size_t i = keep; i < records.size(); ++i) {
    fs::remove(records[i].second, ignored);
  }
}

}  // namespace mayfly::engine
