#include "engine/compare/compare.hpp"

#include <fmt/format.h>
#include <string_view>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/try_assign.hpp"
#include "engine/compare/compare_report.hpp"
#include "engine/compare/run_set.hpp"
#include "engine/compare/switch_search.hpp"
#include "engine/membership/exit_codes.hpp"
#include "engine/run/records.hpp"

namespace mayfly::engine {
namespace {

Result<void> write_report(const RunSet& runs, std::string_view table, std::string_view page) {
  TRY(write_file_atomic(runs.path("table.txt"), table));
  return write_file_atomic(runs.path("report.html"), page);
}

/// Runs the work and reports the results that exist, also after a failure. Returns the exit code of
/// both.
template <typename Work>
int run_and_report(Work& work) {
  const Result<void> ran = work.run();
  const Result<void> reported = work.report();
  for (const Result<void>& done : {ran, reported}) {
    if (!done.ok()) {
      return refuse(done.error(), run_set_exit_code(done.error()));
    }
  }
  return kExitDone;
}

/// A comparison in its folder.
class Comparison {
 public:
  Comparison(const CompareOptions& options, ComparePlan plan)
      : options_(options), plan_(std::move(plan)), runs_(options.folder) {}

  Result<void> open() { return runs_.open("comparison.toml", plan_.fingerprint()); }
  /// Runs the missing cells. kAborted: a run was stopped by the user.
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

/// Only the results of this comparison: the folder may also contain other variants and seeds.
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
  const std::string table =
      compare_table(compare_rows(results, plan_.variants, plan_.conditions), options_.prices);
  const std::string page = compare_page(results, plan_.variants, plan_.conditions, options_.prices,
                                        shell_line(compare_words(options_)));
  TRY(write_report(runs_, table, page));
  if (options_.json) {
    for (const RunResult& result : results) {
      fmt::print("{}\n", to_json(result));
    }
    return {};
  }
  fmt::print("{}charts and records: {}/report.html\n", table, options_.folder);
  return {};
}

CompareOptions comparison_of(const TuneSwitchOptions& options, const std::string& variants) {
  CompareOptions comparison;
  comparison.folder = options.folder;
  comparison.variants = variants;
  comparison.conditions = options.condition;
  comparison.seeds = 1;
  comparison.first_seed = options.first_seed;
  comparison.settings = options.settings;
  comparison.quick = options.quick;
  return comparison;
}

/// The plan of the runs' common settings; kInvalidInput if such a job cannot be switched.
Result<ComparePlan> plan_of(const TuneSwitchOptions& options) {
  if (options.then.find(' ') != std::string::npos) {
    return Error{Errc::kInvalidInput, "--then '" + options.then + "' has spaces"};
  }
  Result<ComparePlan> plan =
      make_compare_plan(comparison_of(options, "bsp bsp:1steps," + options.then));
  if (!plan.ok()) {
    return plan;
  }
  if (plan.value().conditions.size() != 1) {
    return Error{Errc::kInvalidInput, "tune-switch has one condition"};
  }
  if (plan.value().base.steps < 2) {
    return Error{Errc::kInvalidInput, "a job of one step cannot be switched"};
  }
  if (!plan.value().base.evaluate) {
    return Error{Errc::kInvalidInput, "tune-switch compares accuracies and needs --evaluate"};
  }
  return plan;
}

/// The command that asks for this search.
std::vector<std::string> words_of(const TuneSwitchOptions& options) {
  std::vector<std::string> words = {"mayfly",       "tune-switch",
                                    "--output",     options.folder,
                                    "--then",       options.then,
                                    "--condition",  options.condition,
                                    "--tolerance",  fmt::to_string(options.tolerance),
                                    "--runs",       std::to_string(options.runs),
                                    "--probes",     std::to_string(options.probes),
                                    "--first-seed", std::to_string(options.first_seed)};
  append_job(words, options.quick, options.settings);
  return words;
}

class Tuning {
 public:
  Tuning(const TuneSwitchOptions& options, const ComparePlan& plan)
      : options_(options),
        facts_{
            {plan.base.steps, options.tolerance, options.runs, options.probes, options.first_seed},
            options.then,
            ""},
        common_(plan.fingerprint()),
        search_(facts_.options),
        runs_(options.folder) {
    facts_.command = shell_line(words_of(options));
  }

  /// The condition and the phases after bsp are parts of the runs' names; the other settings are in
  /// the file.
  Result<void> open() { return runs_.open("comparison.toml", common_); }
  Result<void> run();
  Result<void> report() const;
  [[nodiscard]] bool is_void() const { return search_.is_void(); }

 private:
  [[nodiscard]] Result<CompareCell> cell_of(const SwitchRun& run) const;

  const TuneSwitchOptions& options_;
  SwitchReportFacts facts_;
  const std::string common_;
  SwitchSearch search_;
  RunSet runs_;
};

Result<CompareCell> Tuning::cell_of(const SwitchRun& run) const {
  const bool is_whole = run.bsp_steps == facts_.options.steps;
  CompareOptions one = comparison_of(
      options_, is_whole ? "bsp" : fmt::format("bsp:{}steps,{}", run.bsp_steps, options_.then));
  one.first_seed = run.seed;
  const Result<ComparePlan> plan = make_compare_plan(one);
  return plan.ok() ? Result<CompareCell>(plan.value().cells.front())
                   : Result<CompareCell>(plan.error());
}

Result<void> Tuning::run() {
  while (const std::optional<SwitchRun> wanted = search_.next()) {
    TRY_ASSIGN(const CompareCell cell, cell_of(*wanted));
    const bool is_known = runs_.find(cell.id) != nullptr;
    TRY(is_known ? Result<void>() : runs_.run(cell));
    const RunResult& result = *runs_.find(cell.id);
    const bool ended_well = result.outcome == elastic::Outcome::kDone && result.top1 >= 0;
    if (!is_known) {
      fmt::print(stderr, "{}, seed {}: {}, accuracy {:.2f} %, {:.1f} s\n", result.variant,
                 result.seed, to_text(result.outcome), 100 * result.top1, result.train_seconds);
    }
    search_.finished(ended_well ? std::optional(result.top1) : std::nullopt, result.train_seconds);
  }
  return {};
}

Result<void> Tuning::report() const {
  const std::string table = switch_table(search_, facts_);
  TRY(write_report(runs_, table, switch_page(search_, facts_)));
  if (options_.json) {
    fmt::print("{}\n", switch_json(search_, facts_));
  } else {
    fmt::print("{}charts and records: {}/report.html\n", table, options_.folder);
  }
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
  return run_and_report(comparison);
}

int run_tune_switch(const TuneSwitchOptions& options) {
  const Result<ComparePlan> plan = plan_of(options);
  if (!plan.ok()) {
    return refuse(plan.error(), kExitUsage);
  }
  Tuning tuning(options, plan.value());
  if (Result<void> opened = tuning.open(); !opened.ok()) {
    return refuse(opened.error(), run_set_exit_code(opened.error()));
  }
  const int code = run_and_report(tuning);
  return code == kExitDone && tuning.is_void() ? kExitFailed : code;
}

}  // namespace mayfly::engine
