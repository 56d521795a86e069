#include "engine/run/start_files.hpp"

#include <array>
#include <system_error>

#include "engine/run/unfinished_run.hpp"

namespace mayfly::engine {
namespace {

namespace fs = std::filesystem;

bool is_absent(const fs::path& path) {
  std::error_code failure;
  const fs::file_status status = fs::symlink_status(path, failure);
  return status.type() == fs::file_type::not_found;
}

std::set<fs::path> event_files(const fs::path& folder) {
  std::set<fs::path> found;
  std::error_code absent;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, absent)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) {
      found.insert(entry.path());
    }
  }
  return found;
}

}  // namespace

StartFiles::StartFiles(const std::string& run_dir, const std::string& token_file) {
  const fs::path run = run_dir;
  const std::string view_log = view_log_path(run_dir);
  for (const fs::path& file :
       {run / "config.toml", run / "events.jsonl", run / "metrics.jsonl", run / "coordinator",
        run / "cloud.json", run / "logs" / "coordinator.log", fs::path(token_file),
        fs::path(view_log), fs::path(view_log + ".lock")}) {
    if (is_absent(file)) {
      files_.push_back(file);
    }
  }
  for (const char* folder : {"logs", "checkpoints", "tb"}) {
    if (is_absent(run / folder)) {
      folders_.push_back(run / folder);
    }
  }
  curves_ = run / "tb";
  old_curves_ = event_files(curves_);
  for (fs::path folder = run; !folder.empty() && is_absent(folder); folder = folder.parent_path()) {
    folders_.push_back(folder);
  }
}

void StartFiles::take_back() const {
  std::error_code ignored;
  for (const fs::path& file : event_files(curves_)) {
    if (!old_curves_.contains(file)) {
      fs::remove(file, ignored);
    }
  }
  for (const fs::path& file : files_) {
    fs::remove(file, ignored);
  }
  for (const fs::path& folder : folders_) {
    fs::remove(folder, ignored);  // fails if something is in it
  }
}

}  // namespace mayfly::engine
