#include "cli/plan_fit.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "base/file.hpp"
#include "base/try_assign.hpp"
#include "cli/run_facts.hpp"
#include "planner/runs/run_fit.hpp"

namespace mayfly::cli {
namespace {

namespace fs = std::filesystem;

/// The text of the folder's README: its runs and tables.
std::string readme_of(const std::vector<planner::FittedRun>& runs,
                      const std::vector<planner::TableText>& tables) {
  std::string text = fmt::format(
      "# Calibration from own runs\n\nMade by `mayfly plan fit` from runs of {} to {}:\n\n",
      runs.back().date, runs.front().date);
  for (const planner::FittedRun& run : runs) {
    text += fmt::format("- {} of {}\n", run.name, run.date);
    for (const std::string& remark : run.remarks) {
      text += fmt::format("  - {}\n", remark);
    }
  }
  text += "\nEach row names its run. Times are in seconds, sizes in MB. Tables:\n\n";
  for (const planner::TableText& table : tables) {
    text += "- " + table.name + "\n";
  }
  return text;
}

/// The folder appears with all its files or not at all.
Result<void> write_folder(const std::string& folder, const std::vector<planner::TableText>& files) {
  const std::string parts = folder + ".partial-" + std::to_string(::getpid());
  TRY(make_directories(parts));
  Result<void> done;
  for (const planner::TableText& file : files) {
    if (done.ok()) {
      done = write_file_atomic(parts + "/" + file.name, file.text);
    }
  }
  if (done.ok() && std::rename(parts.c_str(), folder.c_str()) != 0) {
    done = file_error("cannot write", folder);
  }
  if (!done.ok()) {
    std::error_code ignored;
    fs::remove_all(parts, ignored);
  }
  return done;
}

Result<void> check_output(const std::string& folder) {
  if (folder.empty()) {
    return Error{Errc::kInvalidInput, "plan fit needs -o DIR, the folder to write"};
  }
  std::error_code failure;
  if (fs::exists(folder, failure) &&
      !(fs::is_directory(folder, failure) && fs::is_empty(folder, failure) && !failure)) {
    return Error{Errc::kInvalidInput, "-o " + folder + ": exists already and is no empty folder"};
  }
  return {};
}

Result<void> fit(const ParsedArguments& arguments, Context& context) {
  std::string folder = arguments.option("output");
  while (folder.size() > 1 && folder.ends_with('/')) {
    folder.pop_back();
  }
  TRY(check_output(folder));
  TRY_ASSIGN(const RunKnowledge knowledge, read_knowledge(arguments));
  std::vector<planner::RunFacts> runs;
  for (std::size_t i = 1; i < arguments.positionals.size(); ++i) {
    TRY_ASSIGN(RunRecord run, read_run_record(arguments.positionals[i], knowledge));
    runs.push_back(std::move(run.facts));
  }
  if (runs.empty()) {
    return Error{Errc::kInvalidInput, "plan fit expects run directories, such as runs/a"};
  }
  TRY_ASSIGN(const std::vector<planner::FittedRun> fitted, planner::fit_runs(std::move(runs)));
  std::vector<planner::TableText> files = planner::tables_of(fitted);
  files.push_back({"README.md", readme_of(fitted, files)});
  TRY(write_folder(folder, files));
  for (const planner::FittedRun& run : fitted) {
    for (const std::string& remark : run.remarks) {
      context.out << run.name << ": " << remark << "\n";
    }
  }
  context.out << "wrote " << folder << ":";
  for (const planner::TableText& file : files) {
    context.out << " " << file.name;
  }
  context.out << "\n";
  return {};
}

}  // namespace

std::vector<OptionSpec> plan_fit_options() {
  std::vector<OptionSpec> options = run_knowledge_options();
  options.push_back({"output", "DIR", "of fit: the folder to write, new or empty", "o"});
  return options;
}

int plan_fit(const ParsedArguments& arguments, Context& context) {
  const Result<void> done = fit(arguments, context);
  return done.ok() ? kExitDone : context.complain(done.error());
}

}  // namespace mayfly::cli
