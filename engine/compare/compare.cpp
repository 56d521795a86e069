#include "engine/compare/compare.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <memory>
#include <sstream>

#include "base/file.hpp"
#include "engine/bench/child_process.hpp"
#include "engine/compare/compare_report.hpp"
#include "engine/compare/run_result.hpp"
#include "engine/processes/exit_codes.hpp"
#include "engine/processes/launch.hpp"
#include "engine/run/line_file.hpp"

namespace mayfly::engine {
namespace {

namespace fs = std::filesystem;

constexpr Duration kPollInterval = seconds(1);
constexpr std::size_t kFileBytesMax = std::size_t{1} << 30;

/// A comparison in its folder.
class Comparison {
 public:
  Comparison(const CompareOptions& options, ComparePlan plan)
      : options_(options), plan_(std::move(plan)) {}

  Result<void> open();
  /// Runs what is missing. kAborted: somebody stopped a run.
  Result<void> run();
  Result<void> report() const;

 private:
  [[nodiscard]] std::string path(const std::string& name) const {
    return options_.folder + "/" + name;
  }
  Result<void> check_folder() const;
  Result<void> read_results();
  Result<RunResult> run(const CompareCell& cell) const;
  [[nodiscard]] std::string free_run_dir(const std::string& id) const;
  [[nodiscard]] std::vector<RunResult> results_in_order() const;

  const CompareOptions& options_;
  const ComparePlan plan_;
  std::unique_ptr<LineFile> file_;
  std::map<std::string, RunResult> results_;  // by id
};

/// Results of other settings must not be mixed with these.
Result<void> Comparison::check_folder() const {
  const std::string file = path("comparison.toml");
  if (!fs::exists(file)) {
    return write_file_atomic(file, plan_.fingerprint());
  }
  const Result<std::string> before = read_text_file(file, kFileBytesMax);
  if (!before.ok()) {
    return before.error();
  }
  std::istringstream old_lines(before.value());
  std::istringstream new_lines(plan_.fingerprint());
  for (std::string was, is; std::getline(old_lines, was) && std::getline(new_lines, is);) {
    if (was != is) {
      return Error{Errc::kInvalidInput,
                   fmt::format("{} holds a comparison with {}, not {}; choose another --output",
                               options_.folder, was, is)};
    }
  }
  return before.value() == plan_.fingerprint()
             ? Result<void>()
             : Result<void>(Error{Errc::kInvalidInput,
                                  options_.folder + " holds a comparison by another version; "
                                                    "choose another --output"});
}

Result<void> Comparison::read_results() {
  if (!fs::exists(path("results.jsonl"))) {
    return {};
  }
  const Result<std::string> text = read_text_file(path("results.jsonl"), kFileBytesMax);
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

Result<void> Comparison::open() {
  if (Result<void> made = make_directories(path("runs")); !made.ok()) {
    return made;
  }
  if (Result<void> checked = check_folder(); !checked.ok()) {
    return checked;
  }
  if (Result<void> read = read_results(); !read.ok()) {
    return read;
  }
  Result<std::unique_ptr<LineFile>> file =
      LineFile::open(path("results.jsonl"), LineFile::Content::kLines);
  if (!file.ok()) {
    return std::move(file).error();
  }
  file_ = std::move(file).value();
  return {};
}

Result<void> Comparison::run() {
  std::size_t number = 0;
  for (const CompareCell& cell : plan_.cells) {
    ++number;
    if (results_.contains(cell.id)) {
      continue;
    }
    Result<RunResult> result = run(cell);
    if (!result.ok()) {
      return std::move(result).error();
    }
    if (Result<void> kept = file_->append(to_json(result.value())); !kept.ok()) {
      return kept;
    }
    fmt::print(stderr, "{}/{}  {}, {}, seed {}: {}, {:.1f} s, {:.0f} images/s\n", number,
               plan_.cells.size(), cell.condition, cell.variant, cell.seed, result.value().outcome,
               result.value().train_seconds, result.value().images_per_second);
    results_[cell.id] = std::move(result).value();
  }
  return {};
}

/// That of a run that was interrupted stays: its processes may still be ending.
std::string Comparison::free_run_dir(const std::string& id) const {
  std::string run_dir = path("runs/" + id);
  for (int attempt = 2; fs::exists(run_dir) || fs::exists(run_dir + ".log"); ++attempt) {
    run_dir = path(fmt::format("runs/{}-{}", id, attempt));
  }
  return run_dir;
}

Result<RunResult> Comparison::run(const CompareCell& cell) const {
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
  if (result.value().outcome == "stopped") {
    return Error{Errc::kAborted, "run " + cell.id + " was stopped"};
  }
  result.value().id = cell.id;
  result.value().variant = cell.variant;
  result.value().condition = cell.condition;
  result.value().seed = cell.seed;
  return result;
}

/// Only what this comparison asks for; the folder may hold more.
std::vector<RunResult> Comparison::results_in_order() const {
  std::vector<RunResult> results;
  for (const CompareCell& cell : plan_.cells) {
    if (const auto place = results_.find(cell.id); place != results_.end()) {
      results.push_back(place->second);
    }
  }
  return results;
}

Result<void> Comparison::report() const {
  const std::vector<RunResult> results = results_in_order();
  const std::vector<CompareRow> rows = compare_rows(results, plan_.variants, plan_.conditions);
  const std::string table = compare_table(rows);
  std::map<std::string, std::string> files =
      compare_plots(results, plan_.variants, plan_.conditions);
  std::string command = "mayfly compare --output " + options_.folder;
  command += options_.quick ? " --quick" : "";
  for (const auto& [name, value] : options_.settings) {
    command += " --" + flag_name(*find_setting(name)) + " " + value;
  }
  files["report.md"] = compare_page(rows, files, command);
  files["table.txt"] = table;
  for (const auto& [name, content] : files) {
    if (Result<void> written = write_file_atomic(path(name), std::string_view(content));
        !written.ok()) {
      return written;
    }
  }
  if (options_.json) {
    for (const RunResult& result : results) {
      fmt::print("{}\n", to_json(result));
    }
    return {};
  }
  fmt::print("{}plots and records: {}/report.md\n", table, options_.folder);
  return {};
}

int exit_code_for(const Error& error) {
  return error.code == Errc::kInvalidInput ? kExitUsage
         : error.code == Errc::kAborted    ? kExitStopped
                                           : kExitFailed;
}

}  // namespace

int run_compare(const CompareOptions& options) {
  Result<ComparePlan> plan = make_compare_plan(options);
  if (!plan.ok()) {
    return refuse(plan.error(), kExitUsage);
  }
  Comparison comparison(options, std::move(plan).value());
  if (Result<void> opened = comparison.open(); !opened.ok()) {
    return refuse(opened.error(), exit_code_for(opened.error()));
  }
  const Result<void> ran = comparison.run();
  const Result<void> reported = comparison.report();  // of what there is
  for (const Result<void>& done : {ran, reported}) {
    if (!done.ok()) {
      return refuse(done.error(), exit_code_for(done.error()));
    }
  }
  return kExitDone;
}

}  // namespace mayfly::engine
