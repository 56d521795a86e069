#include "engine/compare/compare.hpp"

#include <fmt/format.h>

#include <map>

#include "base/file.hpp"
#include "base/text.hpp"
#include "engine/compare/compare_report.hpp"
#include "engine/compare/run_set.hpp"
#include "engine/launch/launch.hpp"
#include "engine/processes/exit_codes.hpp"
#include "engine/run/records.hpp"

namespace mayfly::engine {
namespace {

/// A comparison in its folder.
class Comparison {
 public:
  Comparison(const CompareOptions& options, ComparePlan plan)
      : options_(options), plan_(std::move(plan)), runs_(options.folder) {}

  Result<void> open() { return runs_.open("comparison.toml", plan_.fingerprint()); }
  /// Runs what is missing. kAborted: somebody stopped a run.
  Result<void> run();
  Result<void> report() const;

 private:
  [[nodiscard]] std::vector<RunResult> results_in_order() const;

  const CompareOptions& options_;
  const ComparePlan plan_;
  RunSet runs_;
};

Result<void> Comparison::run() {
  std::size_t number = 0;
  for (const CompareCell& cell : plan_.cells) {
    ++number;
    if (runs_.find(cell.id) != nullptr) {
      continue;
    }
    TRY(runs_.run(cell));
    const RunResult& result = *runs_.find(cell.id);
    fmt::print(stderr, "{}/{}  {}, {}, seed {}: {}, {:.1f} s, {:.0f} images/s\n", number,
               plan_.cells.size(), cell.condition, cell.variant, cell.seed, to_text(result.outcome),
               result.train_seconds, result.images_per_second);
  }
  return {};
}

/// Only what this comparison asks for; the folder may hold more.
std::vector<RunResult> Comparison::results_in_order() const {
  std::vector<RunResult> results;
  for (const CompareCell& cell : plan_.cells) {
    if (const RunResult* result = runs_.find(cell.id)) {
      results.push_back(*result);
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
  files["report.md"] = compare_page(rows, files, shell_line(compare_words(options_)));
  files["table.txt"] = table;
  for (const auto& [name, content] : files) {
    if (Result<void> written = write_file_atomic(runs_.path(name), std::string_view(content));
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

}  // namespace

int run_compare(const CompareOptions& options) {
  Result<ComparePlan> plan = make_compare_plan(options);
  if (!plan.ok()) {
    return refuse(plan.error(), kExitUsage);
  }
  Comparison comparison(options, std::move(plan).value());
  if (Result<void> opened = comparison.open(); !opened.ok()) {
    return refuse(opened.error(), run_set_exit_code(opened.error()));
  }
  const Result<void> ran = comparison.run();
  const Result<void> reported = comparison.report();  // of what there is
  for (const Result<void>& done : {ran, reported}) {
    if (!done.ok()) {
      return refuse(done.error(), run_set_exit_code(done.error()));
    }
  }
  return kExitDone;
}

}  // namespace mayfly::engine
