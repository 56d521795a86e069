#pragma once

// A folder of runs: each is a `mayfly train` of its own, and its result a line of results.jsonl.
// What has a result is not run again, so that whoever asks for many runs goes on where it was
// interrupted. For a process with one thread.

#include <map>
#include <memory>
#include <string>

#include "engine/compare/compare_plan.hpp"
#include "engine/compare/run_result.hpp"
#include "engine/run/line_file.hpp"

namespace mayfly::engine {

class RunSet {
 public:
  explicit RunSet(std::string folder) : folder_(std::move(folder)) {}

  /// Makes the folder or reads what it holds. `settings` is what all its runs have in common, kept
  /// in the file `name`: kInvalidInput names the line that was another one before. kIo, kCorrupt.
  [[nodiscard]] Result<void> open(const std::string& name, const std::string& settings);
  /// Null if it has not been run.
  [[nodiscard]] const RunResult* find(const std::string& id) const;
  /// Runs it and keeps the result, also of a job that failed. kAborted: somebody stopped it.
  [[nodiscard]] Result<void> run(const CompareCell& cell);
  /// A file's path in the folder.
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }

 private:
  [[nodiscard]] Result<void> check_settings(const std::string& name,
                                            const std::string& settings) const;
  [[nodiscard]] Result<void> read_results();
  [[nodiscard]] Result<RunResult> start(const CompareCell& cell) const;
  [[nodiscard]] std::string free_run_dir(const std::string& id) const;

  const std::string folder_;
  std::unique_ptr<LineFile> file_;
  std::map<std::string, RunResult> results_;  // by id
};

/// Of a program that could not do its runs.
[[nodiscard]] int run_set_exit_code(const Error& error);

}  // namespace mayfly::engine
