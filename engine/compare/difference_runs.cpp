#include "engine/compare/difference_runs.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <algorithm>
#include <filesystem>

#include "base/file.hpp"
#include "base/process/child_process.hpp"
#include "base/try_assign.hpp"
#include "base/unique_fd.hpp"
#include "base/usable_cores.hpp"
#include "datasets/dataset.hpp"
#include "engine/cloud/hosts.hpp"
#include "engine/compare/run_set.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/config/setting_variables.hpp"
#include "engine/faults/injection_plan.hpp"
#include "engine/membership/exit_codes.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::engine {
namespace {

namespace fs = std::filesystem;
using observe::Cell;
using observe::CellRound;

struct Meaning {
  Cell cell;
  const char* on_one_host;
  const char* over_hosts;  ///< null: the cell is not run
};
constexpr Meaning kMeanings[] = {
    {Cell::kAlone, "one worker, images in memory", "one worker, images in memory"},
    {Cell::kTogether, "all workers, no exchange", "as many on one host, no exchange"},
    {Cell::kExchange, "all workers with exchange", "as many on one host with exchange"},
    {Cell::kHosts, nullptr, "the same over the hosts"},
    {Cell::kWarm, "images prepared, files in the page cache", nullptr},
    {Cell::kWhole, "files read from storage", "the job, images read and prepared"}};

char letter(Cell cell) {
  return static_cast<char>(cell);
}
constexpr Duration kRunPoll = milliseconds(100);

enum class Left { kAll, kNoStorage, kMemory, kAlone };
enum class Place { kOfJob, kOneHost };

/// The injection rules that still apply when parts of the job are left out.
std::string injections_left(const std::string& inject, Left left) {
  std::string text;
  const Result<std::vector<InjectionRule>> rules = parse_injections(inject);
  for (const InjectionRule& rule : rules.value()) {
    const bool is_storage = rule.fetch.count() > 0 || rule.storage > 0;
    const bool is_data = is_storage || rule.prep.count() > 0;
    const bool is_gone =
        (left == Left::kNoStorage && is_storage) || (left == Left::kMemory && is_data) ||
        (left == Left::kAlone && (is_data || rule.worker || rule.delay.count() > 0));
    text += is_gone ? "" : (text.empty() ? "" : ";") + to_text(rule);
  }
  return text;
}

std::vector<SettingValue> cell_settings(const DifferenceOptions& options, Left left,
                                        Place place = Place::kOfJob) {
  const JobConfig& job = options.job;
  const bool alone = left == Left::kAlone;
  const bool in_memory = alone || left == Left::kMemory;
  std::vector<SettingValue> settings = {
      {"workers", alone ? "1" : std::to_string(job.workers)},
      {"global_batch", std::to_string(alone ? job.global_batch / job.workers : job.global_batch)},
      {"threads", std::to_string(job.threads)},
      {"steps", std::to_string(options.steps)},
      {"inject", injections_left(job.inject, left)},
      {"reuse_images", in_memory ? "true" : "false"},
      {"evaluate", "false"},
      {"eval_every_epochs", "0"},
      {"checkpoint_every", "0"},
      {"checkpoint_minutes", "0"},
      {"tensorboard", "false"},
      {"min_workers", "1"},
      {"spares", "0"},
      {"chaos", ""},
      {"trace", ""},
      {"dashboard", ""},
      {"report", ""},
      {"checkpoint_to", ""},
      {"evaluators", "0"},
      {"port", "0"}};
  if (!options.one_host.empty() && place == Place::kOneHost) {
    settings.emplace_back("hosts", fmt::format("{}:{}", options.one_host, alone ? 1 : job.workers));
    settings.emplace_back("hostfile", "");
  }
  return settings;
}

/// Drops the pages of these files from the page cache, which needs no privileges.
Result<void> drop_from_page_cache(const std::string& data) {
  if (datasets::is_procedural(data)) {
    return {};
  }
  TRY_ASSIGN(const datasets::DatasetFiles files, datasets::files_of_dataset(data));
  for (const std::string& name : files.names) {
    const std::string path = files.root + "/" + name;
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd.valid()) {
      return Error{Errc::kIo, "cannot open " + path};
    }
    (void)::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);  // pages mapped elsewhere stay
  }
  return {};
}

/// Mean of the steps after the warm-up.
Result<double> step_ms_of(const std::string& run_dir) {
  double total = 0;
  std::uint64_t steps = 0;
  TRY(for_each_line(run_dir + "/metrics.jsonl", 0, [&](const json::object& line) {
    const auto step = record_of<StepRecord>(line);
    if (step.step > kWarmUpSteps && step.images_per_second > 0) {
      total += 1000 * static_cast<double>(step.samples) / step.images_per_second;
      ++steps;
    }
  }));
  return steps > 0 ? Result<double>(total / static_cast<double>(steps))
                   : Result<double>(Error{Errc::kCorrupt, run_dir + " has no steps"});
}

class DifferenceRuns {
 public:
  DifferenceRuns(const DifferenceOptions& options, std::vector<DifferenceCell> cells)
      : options_(options), cells_(std::move(cells)) {}

  Result<std::vector<CellRound>> run() {
    TRY(make_directories(options_.folder));
    TRY(write_file_atomic(options_.folder + "/job.toml", std::string_view(to_toml(options_.job))));
    std::vector<CellRound> rounds;
    for (std::uint32_t round = 1; round <= options_.rounds; ++round) {
      CellRound& times = rounds.emplace_back();
      for (const DifferenceCell& cell : cells_) {
        TRY_ASSIGN(const double ms, run_cell(cell, round));
        times[cell.cell] = ms;
        fmt::print(stderr, "round {} of {}: {} {:.3f} ms\n", round, options_.rounds,
                   letter(cell.cell), ms);
      }
    }
    return rounds;
  }

 private:
  /// Mean over the jobs of a cell.
  [[nodiscard]] Result<double> run_cell(const DifferenceCell& cell, std::uint32_t round) const {
    if (cell.is_cold) {
      TRY(drop_from_page_cache(options_.job.data));
    }
    std::vector<std::string> run_dirs;
    std::vector<ChildProcess> jobs;
    for (std::uint32_t i = 0; i < cell.jobs; ++i) {
      const std::string run_dir =
          fmt::format("{}/{}-{}-{}", options_.folder, round, letter(cell.cell), i + 1);
      std::vector<std::string> words = {
          "/proc/self/exe", "train", "--quiet", "--config", options_.folder + "/job.toml",
          "--run-dir",      run_dir};
      append_job(words, false, cell.settings);
      TRY_ASSIGN(ChildProcess job,
                 ChildProcess::start(words, {}, run_dir + ".log", setting_variables()));
      jobs.push_back(std::move(job));
      run_dirs.push_back(run_dir);
    }
    double total = 0;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      while (!jobs[i].wait_until(monotonic_now() + kRunPoll)) {
      }
      const Result<RunResult> result = read_run_result(run_dirs[i], {});
      if (!result.ok() || result.value().outcome != elastic::Outcome::kDone) {
        return Error{Errc::kIo, fmt::format("a run of cell {} did not end as expected: {} (see "
                                            "{}.log)",
                                            letter(cell.cell),
                                            last_line_of_log(run_dirs[i] + ".log"), run_dirs[i])};
      }
      TRY_ASSIGN(const double ms, step_ms_of(run_dirs[i]));
      total += ms;
    }
    return total / static_cast<double>(jobs.size());
  }

  const DifferenceOptions& options_;
  const std::vector<DifferenceCell> cells_;
};

json::object to_json(const DifferenceOptions& options, const std::vector<CellRound>& rounds) {
  json::object cells;
  for (const auto& [cell, first] : rounds.front()) {
    json::array& times = cells[std::string(1, letter(cell))].emplace_array();
    for (const CellRound& round : rounds) {
      times.push_back(rounded(round.at(cell), 3));
    }
  }
  json::object kinds;
  for (const observe::StepDifference& part : observe::step_differences(rounds)) {
    kinds[part.kind] = json::object{{"ms", rounded(part.ms, 3)},
                                    {"low_ms", rounded(part.low, 3)},
                                    {"high_ms", rounded(part.high, 3)},
                                    {"measurable", part.is_measurable()}};
  }
  const observe::OtherTools tools = observe::as_other_tools(rounds, options.job.global_batch);
  json::object stash = {{"interconnect_ms", rounded(tools.stash_interconnect_ms, 3)},
                        {"interconnect_share", rounded(tools.stash_interconnect_share, 4)}};
  if (tools.stash_network_ms) {
    stash["network_ms"] = rounded(*tools.stash_network_ms, 3);
    stash["network_share"] = rounded(tools.stash_network_share, 4);
  }
  json::object all = {{"rounds", rounds.size()},
                      {"cells_ms", std::move(cells)},
                      {"kinds", std::move(kinds)},
                      {"stash", std::move(stash)}};
  if (tools.analyzer) {
    json::object analyzer = {{"ingestion", rounded(tools.analyzer->ingestion, 1)},
                             {"preparation", rounded(tools.analyzer->preparation, 1)},
                             {"speed", rounded(tools.analyzer->speed, 1)}};
    if (tools.analyzer->fetch) {
      analyzer["fetch"] = rounded(*tools.analyzer->fetch, 1);
    }
    all["ds_analyzer_images_per_second"] = std::move(analyzer);
  }
  return all;
}

std::string part_line(const observe::StepDifference& part, double step_ms, double per_hour) {
  if (!part.is_measurable()) {
    return fmt::format("  {:<13} not measurable: {:.3f} to {:.3f} ms\n", part.kind, part.low,
                       part.high);
  }
  const double share = part.ms / step_ms;
  return fmt::format("  {:<13} {:>9.3f}  {:>9.3f} to {:<9.3f} {:>5.1f} %{}\n", part.kind, part.ms,
                     part.low, part.high, 100 * share,
                     per_hour > 0 ? fmt::format("  {:.4f}", share * per_hour) : "");
}

std::string as_text(const DifferenceOptions& options, const std::vector<CellRound>& rounds) {
  const JobConfig& job = options.job;
  std::string out =
      fmt::format("cells, mean of {} rounds                          ms a step\n", rounds.size());
  for (const Meaning& meaning : kMeanings) {
    const char* const text = options.one_host.empty() ? meaning.on_one_host : meaning.over_hosts;
    if (text != nullptr) {
      out += fmt::format("  {}  {:<40} {:>12.3f}\n", letter(meaning.cell), text,
                         observe::mean_of(rounds, meaning.cell));
    }
  }
  const double per_hour = job.price_per_hour * job.workers;
  out += fmt::format("of a step           ms  95 % interval           of E{}\n",
                     per_hour > 0 ? "      an hour" : "");
  for (const observe::StepDifference& part : observe::step_differences(rounds)) {
    out += part_line(part, observe::mean_of(rounds, Cell::kWhole), per_hour);
  }
  const observe::OtherTools tools = observe::as_other_tools(rounds, job.global_batch);
  out += fmt::format("Stash: interconnect {:.3f} ms, {:.1f} % (C - A, so with contention)\n",
                     tools.stash_interconnect_ms, 100 * tools.stash_interconnect_share);
  if (tools.stash_network_ms) {
    out += fmt::format("Stash: network {:.3f} ms, {:.1f} % of one host's (N - C)\n",
                       *tools.stash_network_ms, 100 * tools.stash_network_share);
  }
  if (tools.analyzer) {
    const observe::AnalyzerRates& rates = *tools.analyzer;
    out +=
        fmt::format("DS-Analyzer, images/s: G {:.1f} (C), P {:.1f} (D), F {} (E - D), so {:.1f}\n",
                    rates.ingestion, rates.preparation,
                    rates.fetch ? fmt::format("{:.1f}", *rates.fetch) : "unbounded", rates.speed);
  }
  return out;
}

/// If the job's workers are on several hosts: sets the first host and the number of workers.
Result<void> place_on_hosts(DifferenceOptions& options) {
  JobConfig& job = options.job;
  if (job.hosts.empty() && job.hostfile.empty()) {
    return {};
  }
  TRY_ASSIGN(const auto hosts, hosts_of(job));
  if (job.workers == JobConfig().workers) {  // as `mayfly train --hosts` does
    job.workers = 0;
    for (const auto& host : hosts) {
      job.workers += host.slots;
    }
    job.workers -= std::min(job.workers, job.evaluators);  // the runs have no evaluators
  }
  options.one_host = hosts.front().name;
  return {};
}

}  // namespace

Result<std::vector<DifferenceCell>> difference_cells(const DifferenceOptions& options) {
  const JobConfig& job = options.job;
  const auto refused = [](std::string_view why) {
    return Error{Errc::kInvalidInput, fmt::format("profile --difference: {}", why)};
  };
  if (uses_parameter_servers(job) || !job.coordinator.empty() || !job.cloud_provider.empty()) {
    return refused("the job must use all-reduce, with workers that this machine starts");
  }
  if (!options.one_host.empty() && job.threads == 0) {
    return refused(
        "a job over hosts must set the number of threads per worker; otherwise a single worker "
        "would use the cores of all");
  }
  if (!job.resume.empty() || options.rounds == 0 || options.steps <= kWarmUpSteps) {
    return refused(
        "the job must not be resumed, and needs at least one round and one measured step");
  }
  if (job.workers < 2 || job.global_batch % (job.workers * job.microbatch) != 0) {
    return refused(
        fmt::format("the job needs at least two workers, each with the same number of "
                    "microbatches (global batch {}, microbatch {}, workers {})",
                    job.global_batch, job.microbatch, job.workers));
  }
  const auto alone = cell_settings(options, Left::kAlone, Place::kOneHost);
  std::vector<DifferenceCell> cells = {
      {Cell::kAlone, 1, false, alone},
      {Cell::kTogether, job.workers, false, alone},
      {Cell::kExchange, 1, false, cell_settings(options, Left::kMemory, Place::kOneHost)}};
  const DifferenceCell whole{Cell::kWhole, 1, options.one_host.empty(),
                             cell_settings(options, Left::kAll)};
  if (options.one_host.empty()) {
    cells.insert(cells.end(),
                 {whole, {Cell::kWarm, 1, false, cell_settings(options, Left::kNoStorage)}});
  } else {
    cells.insert(cells.end(),
                 {{Cell::kHosts, 1, false, cell_settings(options, Left::kMemory)}, whole});
  }
  return cells;
}

int run_difference_profile(const DifferenceOptions& options) {
  DifferenceOptions usual = options;
  if (const Result<void> placed = place_on_hosts(usual); !placed.ok()) {
    return refuse(placed.error(), kExitUsage);
  }
  if (usual.job.threads == 0 && usual.one_host.empty()) {
    // A lone worker must not use the cores of the other workers.
    usual.job.threads = std::max(1U, usable_cores() / usual.job.workers);
  }
  Result<std::vector<DifferenceCell>> cells = difference_cells(usual);
  if (!cells.ok()) {
    return refuse(cells.error(), kExitUsage);
  }
  std::error_code failure;
  if (fs::exists(usual.folder, failure) && !fs::is_empty(usual.folder, failure)) {
    return refuse({Errc::kInvalidInput, usual.folder + " is not empty; choose another --output"},
                  kExitUsage);
  }
  const Result<std::vector<CellRound>> rounds = DifferenceRuns(usual, cells.value()).run();
  if (!rounds.ok()) {
    return refuse(rounds.error(), kExitFailed);
  }
  fmt::print("{}", usual.json ? json_text(to_json(usual, rounds.value())) + "\n"
                              : as_text(usual, rounds.value()));
  return kExitDone;
}

}  // namespace mayfly::engine
