#include "cli/plan_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "base/file.hpp"
#include "base/time.hpp"
#include "base/try_assign.hpp"
#include "cli/plan_keep.hpp"
#include "cli/plan_report.hpp"
#include "cli/plan_source.hpp"
#include "engine/config/cloud_offers.hpp"
#include "engine/config/job_file.hpp"
#include "planner/search/amounts.hpp"

namespace mayfly::cli {
namespace {

using planner::Question;

constexpr std::size_t kRows = 10;

Error bad(const std::string& flag, const std::string& text, const std::string& expected) {
  return {Errc::kInvalidInput, fmt::format("--{} {}: expects {}", flag, text, expected)};
}

/// Parses "6h", "90m", "45s" or seconds.
std::optional<double> span_of(std::string_view text) {
  double unit = 1;
  if (!text.empty()) {
    const std::map<char, double> units = {{'h', kSecondsPerHour}, {'m', 60}, {'s', 1}};
    if (const auto found = units.find(text.back()); found != units.end()) {
      unit = found->second;
      text.remove_suffix(1);
    }
  }
  const auto number = number_in<double>(text, 0.0, 1e9);
  return number ? std::optional(*number * unit) : std::nullopt;
}

/// Parses a factor such as "x3".
std::optional<double> factor_of(std::string_view text) {
  return text.starts_with("x") ? number_in<double>(text.substr(1), 0.0, 1e6) : std::nullopt;
}

Result<std::optional<double>> read_span(const ParsedArguments& arguments, const std::string& flag) {
  const std::string text = arguments.option(flag);
  if (text.empty()) {
    return std::optional<double>();
  }
  const std::optional<double> span = span_of(text);
  if (!span) {
    return bad(flag, text, "a time such as 6h, 90m or 45s");
  }
  return span;
}

/// Reads the what-if flags; `words` describes them for the user.
Result<planner::Scenario> read_scenario(const ParsedArguments& arguments, std::string& words) {
  planner::Scenario scenario;
  std::vector<std::string> parts;
  const auto factor = [&](const std::string& flag, double& value) -> Result<void> {
    const std::string text = arguments.option(flag);
    const std::optional<double> read = factor_of(text);
    if (!text.empty() && !read) {
      return bad(flag, text, "a factor such as x2");
    }
    if (read) {
      value = *read;
      parts.push_back(flag + " " + text);
    }
    return {};
  };
  TRY(factor("price", scenario.price_factor));
  TRY(factor("hazard", scenario.hazard_factor));
  const std::string start_up = arguments.option("start-up");
  if (factor_of(start_up)) {
    TRY(factor("start-up", scenario.start_up_factor));
  } else {
    TRY_ASSIGN(scenario.start_up_s, read_span(arguments, "start-up"));
    if (scenario.start_up_s) {
      parts.push_back("start-up " + start_up);
    }
  }
  TRY_ASSIGN(scenario.recovery_s, read_span(arguments, "recovery"));
  if (scenario.recovery_s) {
    parts.push_back("recovery " + arguments.option("recovery"));
  }
  for (const std::string& part : parts) {
    words += (words.empty() ? "" : ", ") + part;
  }
  return scenario;
}

Result<Question> read_question(const ParsedArguments& arguments, const engine::JobConfig& config) {
  Question question;
  TRY_ASSIGN(question.deadline_s, read_span(arguments, "deadline"));
  if (const std::string text = arguments.option("budget"); !text.empty()) {
    double budget = 0;
    TRY(read_number(arguments, "budget", budget));
    question.budget = budget;
  } else if (config.cloud_budget > 0) {
    question.budget = config.cloud_budget;
  }
  if (config.cloud_budget_per_hour > 0) {
    question.budget_per_hour = config.cloud_budget_per_hour;
  }
  const std::string goal = arguments.option("goal", "cheapest");
  if (goal != "cheapest" && goal != "fastest") {
    return bad("goal", goal, "cheapest or fastest");
  }
  question.goal = goal == "cheapest" ? planner::Goal::kCheapest : planner::Goal::kFastest;
  TRY(read_number(arguments, "probability", question.probability));
  if (question.probability >= 1) {
    return bad("probability", arguments.option("probability"), "a number between 0 and 1");
  }
  TRY(read_number(arguments, "seed", question.seed));
  TRY(read_number(arguments, "max-workers", question.workers_most));
  if (config.cloud_max_workers > 0) {
    question.workers_most = std::min(question.workers_most, config.cloud_max_workers);
  }
  TRY(read_number(arguments, "min-workers", question.workers_least));
  question.workers_least = std::max(question.workers_least, config.min_workers);
  if (question.workers_least > question.workers_most || question.workers_most > 4096) {
    return Error{Errc::kInvalidInput,
                 fmt::format("workers from {} to {}: expects 1 to 4096, in this order",
                             question.workers_least, question.workers_most)};
  }
  question.checkpoint_every_s = 60 * config.checkpoint_minutes;
  question.for_each = [](std::size_t count, const std::function<void(std::size_t)>& task) {
    std::atomic<std::size_t> next = 0;
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
      threads.emplace_back([&] {
        for (std::size_t at = next++; at < count; at = next++) {
          task(at);
        }
      });
    }
  };
  return question;
}

/// Whether a flag, the environment or a file sets the interval between checkpoints.
Result<bool> has_checkpoint_minutes(const ParsedArguments& arguments, const Context& context) {
  constexpr double kNotGiven = -1;
  engine::JobConfig unset;
  unset.checkpoint_minutes = kNotGiven;
  TRY_ASSIGN(const engine::JobConfig config, collect_settings(arguments, context, unset));
  return config.checkpoint_minutes != kNotGiven;
}

/// The settings of the job with the candidate's servers.
engine::JobConfig job_for(engine::JobConfig config, const PlanSource& planned,
                          const Question& question, const planner::Candidate& candidate) {
  config.workers = candidate.workers + candidate.spares;
  config.spares = candidate.spares;
  config.steps = planned.steps > 0 ? planned.steps : config.steps;
  config.cloud_max_workers = std::max(config.cloud_max_workers, config.workers);
  config.cloud_on_demand_floor = candidate.on_demand_floor;
  config.cloud_budget = question.budget.value_or(0);
  config.checkpoint_minutes = candidate.checkpoint_every_s / 60;
  if (!planned.job.servings.empty()) {
    const planner::ParameterServing& serving = planned.job.servings[candidate.serving];
    config.sync = serving.is_synchronous ? "bsp" : "asp";
    config.ps = serving.servers;
  }
  config.cloud_offers.clear();
  config.cloud_composition.clear();
  const double first = planned.speeds[candidate.offers.front()];
  for (std::size_t place = 0; place < candidate.offers.size(); ++place) {
    const std::size_t offer = candidate.offers[place];
    const planner::OfferModel& model = planned.market.offers[offer];
    const std::string name = engine::offer_name(model.offer);
    config.cloud_offers += fmt::format("{}{}={}*{:.4g}", config.cloud_offers.empty() ? "" : ",",
                                       name, model.price_per_hour, planned.speeds[offer] / first);
    if (model.workers_most > 0) {
      config.cloud_offers += fmt::format("#{}", model.workers_most);
    }
    if (!candidate.composition.empty() && candidate.composition[place] > 0) {
      config.cloud_composition +=
          fmt::format("{}{} x {}", config.cloud_composition.empty() ? "" : " + ",
                      candidate.composition[place], name);
    }
  }
  return config;
}

/// Checks that the job file can be written, before the plan takes its time.
Result<void> check_target(const std::string& path, const engine::JobConfig& config) {
  if (path.empty()) {
    return {};
  }
  for (const std::string& file : {path, plan_beside(path)}) {
    if (std::filesystem::exists(file)) {
      return Error{Errc::kInvalidInput, "--write " + path + ": " + file + " exists already"};
    }
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder)) {
    return Error{Errc::kInvalidInput,
                 "--write " + path + ": there is no folder " + folder.string()};
  }
  if (config.cloud_provider.empty()) {
    return Error{Errc::kInvalidInput,
                 "--write needs the provider that the coordinator asks for servers: "
                 "--cloud-provider NAME, or a [cloud] table in --config"};
  }
  return {};
}

/// Writes the job file and its plan beside it: both or none.
Result<void> write_job(const std::string& path, engine::JobConfig config, const PlanReport& report,
                       const planner::Market& market, const planner::KeptPlan& plan) {
  TRY(check_target(path, config));
  TRY(engine::validate(config));
  const std::string plan_file = plan_beside(path);
  const planner::Row& chosen = report.answer.rows.front();
  const planner::Spread& time = chosen.summary.time_s;
  const planner::Spread& cost = chosen.summary.cost;
  const std::string head = fmt::format(
      "# Made by `mayfly plan` (seed {}, prices of {}, calibration of {}).\n"
      "# {}\n"
      "# Expected: {} ({} to {}), cost {} ({} to {}).\n",
      report.question.seed, report.priced, report.calibrated, describe(market, chosen.candidate),
      planner::time_words(time.mean), planner::time_words(time.low), planner::time_words(time.high),
      planner::money_words(cost.mean), planner::money_words(cost.low),
      planner::money_words(cost.high));
  config.plan = std::filesystem::path(plan_file).filename().string();
  TRY(write_file_atomic(plan_file, text_of_plan(plan)));
  const Result<void> written = write_file_atomic(path, head + engine::to_job_file(config));
  if (!written.ok()) {
    std::error_code ignored;
    std::filesystem::remove(plan_file, ignored);
  }
  return written;
}

/// Removes candidates whose speed is not known, and reports the first of those on the same offers.
Result<void> leave_out_unknown(const PlanSource& planned,
                               std::vector<planner::Candidate>& candidates, PlanReport& report) {
  std::set<std::vector<std::size_t>> named;
  for (const planner::Candidate& one :
       take_unknown_speeds(planned.market, planned.job, candidates)) {
    if (named.insert(one.offers).second) {
      report.left_out.push_back({describe(planned.market, one) + " and similar ones",
                                 "the speed of these workers together is not known"});
    }
  }
  if (candidates.empty()) {
    return Error{Errc::kInvalidInput,
                 "the speed of no set of workers is known: " + report.left_out.back().offer};
  }
  return {};
}

/// The hour of launch, in seconds of the day.
Result<double> read_launch_hour(const ParsedArguments& arguments) {
  const std::string hour = arguments.option("launch-hour", "0");
  const std::optional<double> hour_of_day = number_in<double>(hour, 0.0, 24.0);
  if (!hour_of_day || *hour_of_day == 24) {
    return bad("launch-hour", hour, "an hour of the day, from 0 to below 24");
  }
  return *hour_of_day * kSecondsPerHour;
}

/// Evaluates the same candidates in the changed scenario. If that is impossible, the plan remains
/// without it.
void add_scenario(const PlanSource& planned, const planner::Scenario& scenario,
                  const std::vector<planner::Candidate>& candidates, PlanReport& report) {
  Result<planner::Answer> other =
      answer(changed(planned.market, scenario), changed(planned.job, scenario), report.question,
             candidates);
  if (other.ok()) {
    report.changed = std::move(other).value();
  } else {
    report.warnings.push_back(fmt::format("if {}: {}", report.scenario, other.error().detail));
  }
}

Result<int> plan_and_print(const ParsedArguments& arguments, Context& context) {
  TRY_ASSIGN(const engine::JobConfig config, resolve_config(arguments, context));
  TRY(check_target(arguments.option("write"), config));
  const bool has_market = !arguments.option("market").empty();
  if (has_market == !arguments.option("calibration").empty()) {
    return Error{Errc::kInvalidInput,
                 "plan needs either --market FILE, which describes the offers, or "
                 "--calibration DIR, the measurements of a study"};
  }
  TRY_ASSIGN(PlanSource planned, has_market ? source_of_market(arguments, config)
                                            : source_of_calibration(arguments, config));
  TRY_ASSIGN(Question question, read_question(arguments, config));
  question.accuracy = planned.accuracy;
  PlanReport report;
  TRY_ASSIGN(const planner::Scenario scenario, read_scenario(arguments, report.scenario));
  std::size_t rows = kRows;
  TRY(read_number(arguments, "rows", rows));
  TRY_ASSIGN(planned.job.clock_s, read_launch_hour(arguments));
  report.job = planned.job_text;
  report.priced = planned.priced;
  report.calibrated = planned.calibrated;
  report.warnings = planned.warnings;
  report.offers = planned.market.offers.size();
  report.left_out = planned.left_out;
  report.workers_measured_most = planned.measured_most;
  std::vector<planner::Candidate> candidates =
      with_servings(planned.job, candidates_of(planned.market, question));
  if (candidates.empty()) {
    return Error{Errc::kInvalidInput,
                 fmt::format("no plan with at least {} workers keeps max_workers of the offers and "
                             "cloud_budget_per_hour",
                             question.workers_least)};
  }
  TRY(leave_out_unknown(planned, candidates, report));
  TRY_ASSIGN(const bool is_given, has_checkpoint_minutes(arguments, context));
  if (!is_given) {
    question.checkpoint_every_s =
        checkpoint_interval(planned.market, planned.job, question, candidates);
    for (planner::Candidate& one : candidates) {
      one.checkpoint_every_s = question.checkpoint_every_s;
    }
  }
  report.question = question;
  TRY_ASSIGN(report.answer, answer(planned.market, planned.job, question, candidates));
  if (report.answer.chosen() != nullptr) {
    report.advice = advise(planned.market, planned.job, question, report.answer);
    if (!is_given && report.advice->checkpoints) {
      report.advice->checkpoints->chosen_s = question.checkpoint_every_s;
    }
  }
  if (scenario.changes_anything()) {
    add_scenario(planned, scenario, candidates, report);
  }
  if (const std::string target = arguments.option("write"); !target.empty()) {
    if (report.advice) {
      TRY(write_job(target,
                    job_for(config, planned, question, report.answer.rows.front().candidate),
                    report, planned.market, plan_to_keep(arguments, config, planned, report)));
    } else {
      report.warnings.push_back("--write " + target +
                                ": nothing is written, as no plan keeps the limits");
    }
  }
  context.out << (arguments.has("json") ? plan_json(planned.market, report)
                                        : plan_text(planned.market, report, rows));
  return report.advice ? kExitDone : kExitFailed;
}

}  // namespace

std::vector<OptionSpec> plan_options() {
  return {{"market", "FILE", "description of the offers: speeds, lifetimes, start-up times"},
          {"calibration", "DIR",
           "instead, and of predict, check: the folder with tables of measurements"},
          {"network", "NAME", "with --calibration: the network, as the tables name it"},
          {"family", "NAME", "with --calibration: the family of a network that was not measured"},
          {"gflops", "N", "with --calibration: its relative operations"},
          {"parameter-servers", "N,N...", "with --calibration: numbers of them to choose from (1)"},
          {"policies", "asp,bsp", "with parameter servers: policies to choose from (asp)"},
          {"deadline", "TIME", "the job must finish within this time: 6h, 90m, 45s"},
          {"budget", "MONEY",
           "the job must not cost more than this (default: that of the [cloud] table)"},
          {"probability", "P", "probability with which both must be kept (0.95)"},
          {"goal", "GOAL", "cheapest or fastest of the plans that keep them (cheapest)"},
          {"max-workers", "N", "largest number of workers (16)"},
          {"min-workers", "N", "smallest number of workers (1)"},
          {"images", "N", "size of the training set, if --data does not determine it"},
          {"images-per-second", "V", "speed of a worker of an offer with speed 1"},
          {"launch-hour", "H", "hour of the day at which the job begins, from 0 to below 24 (0)"},
          {"price", "xF", "what if all prices were F times as high"},
          {"hazard", "xF", "what if servers were lost F times as often"},
          {"start-up", "xF | TIME", "what if servers took that long to start"},
          {"recovery", "TIME", "what if all workers stood still for that long after each loss"},
          {"price-age", "DAYS", "warn of prices that are older than this (30)"},
          {"rows", "N", "number of rows of the table (10)"},
          {"seed", "N", "random seed of the simulation (1)"},
          {"write", "FILE",
           "write the chosen plan as a job file for `mayfly coordinator`, and its predictions "
           "beside it"}};
}

std::vector<std::string> plan_settings() {
  return {"model",
          "data",
          "epochs",
          "steps",
          "global_batch",
          "microbatch",
          "cloud_provider",
          "cloud_offers",
          "cloud_command",
          "run_dir",
          "checkpoint_minutes"};
}

int plan_job(const ParsedArguments& arguments, Context& context) {
  const Result<int> code = plan_and_print(arguments, context);
  return code.ok() ? code.value() : context.complain(code.error());
}

}  // namespace mayfly::cli
