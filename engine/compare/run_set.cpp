#include "engine/compare/run_set.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/process/child_process.hpp"
#include "engine/processes/exit_codes.hpp"

namespace mayfly::engine {
namespace {

namespace fs = std::filesystem;

constexpr Duration kPollInterval = seconds(1);
constexpr std::size_t kResultsBytesMax = std::size_t{1} << 30;

}  // namespace

/// Results of other settings must not be mixed with these.
Result<void> RunSet::check_settings(const std::string& name, const std::string& settings) const {
  const std::string file = path(name);
  if (!fs::exists(file)) {
    return write_file_atomic(file, std::string_view(settings));
  }
  const Result<std::string> before = read_text_file(file, kResultsBytesMax);
  if (!before.ok()) {
    return before.error();
  }
  std::istringstream old_lines(before.value());
  std::istringstream new_lines(settings);
  for (std::string was, is; std::getline(old_lines, was) && std::getline(new_lines, is);) {
    if (was != is) {
      return Error{Errc::kInvalidInput, fmt::format("{} holds runs with {}, not {}; choose another "
                                                    "--output",
                                                    folder_, was, is)};
    }
  }
  return before.value() == settings
             ? Result<void>()
             : Result<void>(
                   Error{Errc::kInvalidInput,
                         folder_ + " holds runs by another version; choose another --output"});
}

Result<void> RunSet::read_results() {
  if (!fs::exists(path("results.jsonl"))) {
    return {};
  }
  const Result<std::string> text = read_text_file(path("results.jsonl"), kResultsBytesMax);
  if (!text.ok()) {
    return text.error();
  }
  std::istringstream lines(text.value());
  for (std::string line; std::getline(lines, line) && !lines.eof();) {  // not a torn last one
    Result<RunResult> result = parse_run_result(line);
    if (!result.ok()) {
      return Error{Errc::kCorrupt, path("results.jsonl") + ": " + result.error().detail};
    }
    const std::string id = result.value().id;
    results_[id] = std::move(result).value();
  }
  return {};
}

Result<void> RunSet::open(const std::string& name, const std::string& settings) {
  TRY(make_directories(path("runs")));
  TRY(check_settings(name, settings));
  TRY(read_results());
  Result<std::unique_ptr<LineFile>> file =
      LineFile::open(path("results.jsonl"), LineFile::Content::kLines);
  if (!file.ok()) {
    return std::move(file).error();
  }
  file_ = std::move(file).value();
  return {};
}

const RunResult* RunSet::find(const std::string& id) const {
  const auto place = results_.find(id);
  return place == results_.end() ? nullptr : &place->second;
}

/// That of a run that was interrupted stays: its processes may still be ending.
std::string RunSet::free_run_dir(const std::string& id) const {
  std::string run_dir = path("runs/" + id);
  for (int attempt = 2; fs::exists(run_dir) || fs::exists(run_dir + ".log"); ++attempt) {
    run_dir = path(fmt::format("runs/{}-{}", id, attempt));
  }
  return run_dir;
}

Result<RunResult> RunSet::start(const CompareCell& cell) const {
  const std::string run_dir = free_run_dir(cell.id);
  const std::string log = run_dir + ".log";
  std::vector<std::string> words = {own_program(), "train", "--quiet", "--run-dir", run_dir};
  for (const auto& [name, value] : cell.settings) {
    words.push_back("--" + flag_name(*find_setting(name)));
    words.push_back(value);
  }
  Result<ChildProcess> child = ChildProcess::start(words, {}, log);
  if (!child.ok()) {
    return std::move(child).error();
  }
  while (!child.value().wait_until(monotonic_now() + kPollInterval)) {
  }
  Result<RunResult> result = read_run_result(run_dir);
  if (!result.ok()) {
    return Error{Errc::kIo, fmt::format("run {} did not end as it should: {} (see {})", cell.id,
                                        last_line_of(log), log)};
  }
  if (result.value().outcome == elastic::Outcome::kStopped) {
    return Error{Errc::kAborted, "run " + cell.id + " was stopped"};
  }
  result.value().id = cell.id;
  result.value().variant = cell.variant;
  result.value().condition = cell.condition;
  result.value().seed = cell.seed;
  return result;
}

Result<void> RunSet::run(const CompareCell& cell) {
  Result<RunResult> result = start(cell);
  if (!result.ok()) {
    return std::move(result).error();
  }
  TRY(file_->append(to_json(result.value())));
  results_[cell.id] = std::move(result).value();
  return {};
}

int run_set_exit_code(const Error& error) {
  return error.code == Errc::kInvalidInput ? kExitUsage
         : error.code == Errc::kAborted    ? kExitStopped
                                           : kExitFailed;
}

}  // namespace mayfly::engine
