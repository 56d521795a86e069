#pragma once

// A run directory on disk for the tests of the dashboard.

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/observe/run_text.hpp"

namespace mayfly::observe {

class RunFolder {
 public:
  RunFolder() {
    std::string name = std::filesystem::temp_directory_path() / "mayfly-observe-XXXXXX";
    path_ = ::mkdtemp(name.data());
    add("events.jsonl", event_line(0, "started", "\"metrics_bytes\": 0") + "\n");
    add("metrics.jsonl", "");
  }
  ~RunFolder() { std::filesystem::remove_all(path_); }
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  void add(const std::string& file, const std::string& text) const {
    std::ofstream(path_ + "/" + file, std::ios::app) << text;
  }
  void add_steps(int first, int last) const {
    for (int i = first; i <= last; ++i) {
      add("metrics.jsonl", step_line(i, i) + "\n");
    }
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace mayfly::observe
