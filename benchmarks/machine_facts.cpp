#include "benchmarks/machine_facts.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "base/file.hpp"
#include "engine/job/job.hpp"
#include "engine/run/record_json.hpp"

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
  std::string text = engine::json_text(
      {{"kind", "machine"},
       {"processor", processor_name()},
       {"cores", std::thread::hardware_concurrency()},
       {"commit", commit.empty() ? engine::json::value() : engine::json::value(commit)},
       {"uncommitted_changes", changed},
       {"mayfly", engine::kVersion},
       {"load_average_before", engine::rounded(load_average(), 2)},
       {"date", today()}});
  text.insert(text.size() - 1, more);
  return text;
}

}  // namespace mayfly::bench
