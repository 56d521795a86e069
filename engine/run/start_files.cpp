#include "engine/run/start_files.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/file.hpp"
#include "base/log.hpp"
#include "engine/run/plan_file.hpp"
#include "engine/run/run_directory.hpp"

namespace mayfly::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kContentMax = std::size_t{256} << 20;  // of a view log

bool is_absent(const fs::path& path) {
  std::error_code failure;
  const fs::file_status status = fs::symlink_status(path, failure);
  return status.type() == fs::file_type::not_found;
}

std::set<fs::path> event_files(const fs::path& folder) {
  std::set<fs::path> found;
  for (const std::string& name : names_in(folder.string())) {
    if (name.starts_with("events.out.tfevents.")) {
      found.insert(folder / name);
    }
  }
  return found;
}

/// The name of a folder while it may have to be restored.
fs::path name_aside(const fs::path& folder) {
  return folder.parent_path() /
         std::string(".").append(folder.filename().string()).append(".before");
}

}  // namespace

StartFiles::StartFiles(const std::string& run_dir, const std::string& token_file) : run_(run_dir) {
  const fs::path& run = run_;
  const std::string view_log = view_log_path(run_dir);
  for (const fs::path& file :
       {run / "config.toml", run / "events.jsonl", run / "metrics.jsonl", run / "members.jsonl",
        run / "coordinator", run / "dashboard", run / "cloud.json", run / "facts.json",
        run / kPlanName, run / "logs" / "coordinator.log", fs::path(token_file),
        fs::path(view_log)}) {
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
}

void StartFiles::keep_contents() {
  const auto is_older = [this](const fs::path& file) {
    return std::find(files_.begin(), files_.end(), file) == files_.end();
  };
  for (const fs::path& file :
       {run_ / "config.toml", run_ / "coordinator", run_ / "cloud.json", run_ / "facts.json",
        fs::path(view_log_path(run_)), fs::path(summary_path(run_))}) {
    if (Result<Bytes> content = read_file(file, kContentMax); content.ok() && is_older(file)) {
      contents_.emplace(file, std::move(content).value());
    }
  }
  std::set<fs::path> growing = old_curves_;
  growing.insert({run_ / "events.jsonl", run_ / "metrics.jsonl", run_ / "members.jsonl",
                  run_ / "logs" / "coordinator.log"});
  for (const fs::path& file : growing) {
    std::error_code absent;
    if (const std::uintmax_t size = fs::file_size(file, absent); !absent && is_older(file)) {
      sizes_.emplace(file, size);
    }
  }
}

void StartFiles::set_aside(const std::string& folder) {
  std::error_code ignored;
  if (is_absent(folder)) {
    return;
  }
  moved_folder_ = folder;
  fs::remove_all(name_aside(moved_folder_), ignored);  // left by a killed process
  fs::rename(moved_folder_, name_aside(moved_folder_), ignored);
}

StartFiles::~StartFiles() {
  std::error_code ignored;
  if (!moved_folder_.empty()) {
    fs::remove_all(name_aside(moved_folder_), ignored);
  }
}

void StartFiles::take_back() {
  std::error_code ignored;
  if (!moved_folder_.empty()) {
    fs::rename(name_aside(moved_folder_), moved_folder_, ignored);
    moved_folder_.clear();
  }
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
  for (const auto& [file, content] : contents_) {
    if (const Result<void> restored = write_file_atomic(file, ByteSpan(content)); !restored.ok()) {
      log::error("the run directory is not as it was: " + restored.error().detail);
    }
  }
  for (const auto& [file, size] : sizes_) {
    if (const std::uintmax_t now = fs::file_size(file, ignored); !ignored && now > size) {
      fs::resize_file(file, size, ignored);
    }
  }
}

}  // namespace mayfly::engine
