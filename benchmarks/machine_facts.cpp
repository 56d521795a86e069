#include "benchmarks/machine_facts.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "base/file.hpp"
#include "engine/job/version.hpp"
#include "engine/run/json_text.hpp"
#include "engine/run/run_directory.hpp"

namespace mayfly::bench {
namespace {

std::string processor_name() {
  std::ifstream facts("/proc/cpuinfo");
  for (std::string line; std::getline(facts, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

/// What a git command prints about the tree in which the program lies; empty if it fails.
std::string git(const std::string& arguments) {
  const std::string folder = std::filesystem::path(own_program()).parent_path().string();
  if (folder.find('\'') != std::string::npos) {
    return {};
  }
  const std::string command = fmt::format("git -C '{}' {} 2>/dev/null", folder, arguments);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::string text;
  std::array<char, 4096> chunk{};
  while (pipe && std::fgets(chunk.data(), static_cast<int>(chunk.size()), pipe.get()) != nullptr) {
    text += chunk.data();
  }
  const std::size_t end = text.find_last_not_of('\n');
  return end == std::string::npos ? std::string() : text.substr(0, end + 1);
}

double load_average() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 ? load : 0;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

}  // namespace

std::string machine_line(const std::string& more) {
  const std::string commit = git("rev-parse --short HEAD");
  const bool changed = !git("status --porcelain --untracked-files=no").empty();
  std::string text = engine::JsonObject()
                         .add("kind", engine::json_string("machine"))
                         .add("processor", engine::json_string(processor_name()))
                         .add("cores", std::to_string(std::thread::hardware_concurrency()))
                         .add("commit", commit.empty() ? "null" : engine::json_string(commit))
                         .add("uncommitted_changes", changed ? "true" : "false")
                         .add("mayfly", engine::json_string(engine::kVersion))
                         .add("load_average_before", fmt::format("{:.2f}", load_average()))
                         .add("date", engine::json_string(today()))
                         .text();
  text.insert(text.size() - 1, more);
  return text;
}

}  // namespace mayfly::bench
