#include "benchmarks/plan/plan_bench.hpp"

#include <fmt/format.h>

#include <optional>

#include "base/check.hpp"
#include "base/time.hpp"
#include "base/try_assign.hpp"
#include "benchmarks/bench_arguments.hpp"
#include "benchmarks/machine_facts.hpp"
#include "engine/membership/exit_codes.hpp"
#include "planner/search/question.hpp"
#include "planner/simulation/policy_path.hpp"

namespace mayfly::bench {
namespace {

constexpr double kHour = kSecondsPerHour;
constexpr std::uint32_t kServers = 16;
constexpr double kDay = 24 * kHour;
constexpr std::uint64_t kPaths = 10'000;
constexpr std::uint64_t kPolicyPaths = 100;
constexpr std::size_t kCandidates = 500;

/// Three machines in three zones, each also on demand; half of the servers are lost in a day.
planner::Market invented_market() {
  planner::Market market;
  market.machines = 3;
  for (std::size_t zone = 0; zone < 3; ++zone) {
    market.zones.push_back({"zone" + std::to_string(zone), {0.05, 0.3, {}, 0}});
    for (std::size_t machine = 0; machine < 3; ++machine) {
      planner::OfferModel offer;
      offer.offer = {"type" + std::to_string(machine), market.zones.back().name,
                     cloud_hooks::Market::kSpot};
      offer.machine = machine;
      offer.zone = zone;
      offer.price_per_hour =
          0.2 * static_cast<double>(machine + 1) + 0.01 * static_cast<double>(zone);
      offer.lifetime =
          planner::LifetimeTable({{2 * kHour, 0.3}, {12 * kHour, 0.5}, {24 * kHour, 0.7}}, kDay);
      offer.start_up = planner::QuantileTable({60, 75, 90, 150});
      offer.refused = 0.1;
      offer.stock_out = planner::QuantileTable({60, 900});
      market.offers.push_back(offer);
      if (zone == 0) {
        offer.offer.market = cloud_hooks::Market::kOnDemand;
        offer.lifetime = {};
        offer.price_per_hour *= 3;
        market.offers.push_back(offer);
      }
    }
  }
  return market;
}

/// Work for so many servers of the first machine; machine m is m + 1 times as fast.
planner::JobModel job_of(double server_seconds) {
  planner::JobModel job;
  job.work = server_seconds;
  job.speed = [](std::span<const std::uint32_t> workers) {
    double sum = 0;
    for (std::size_t machine = 0; machine < workers.size(); ++machine) {
      sum += workers[machine] * static_cast<double>(machine + 1);
    }
    return sum;
  };
  return job;
}

struct Figures {
  double cpu_s = 0;
  std::uint64_t paths = 0;
  std::optional<double> losses;  // of a path
};

template <typename Run>
Figures timed(Run run) {
  const Instant begin = thread_cpu_now();
  Figures figures = run();
  figures.cpu_s = to_seconds(thread_cpu_now() - begin);
  return figures;
}

planner::Candidate servers_of_one_offer() {
  planner::Candidate candidate;
  candidate.offers = {0};
  candidate.workers = kServers;
  return candidate;
}

Figures of_paths(const planner::Market& market) {
  // More work than can be done, so that every path lasts for the whole day.
  const planner::JobModel job = job_of(10 * kServers * kDay);
  const auto paths = simulate(market, job, servers_of_one_offer(), kDay, 1, 0, kPaths);
  return {0, kPaths, planner::summarise(paths).losses};
}

Figures of_policy(const planner::Market& market) {
  const planner::JobModel job = job_of(10 * kServers * kDay);
  std::vector<planner::PathOutcome> paths;
  for (std::uint64_t path = 0; path < kPolicyPaths; ++path) {
    paths.push_back(run_policy_path(market, job, servers_of_one_offer(), kDay, 1, path));
  }
  return {0, kPolicyPaths, planner::summarise(paths).losses};
}

Figures of_question(const planner::Market& market) {
  planner::Question question;
  question.deadline_s = 10 * kHour;
  std::vector<planner::Candidate> candidates = candidates_of(market, question);
  ENSURE(candidates.size() >= kCandidates, "the market has as many candidates as are measured");
  candidates.resize(kCandidates);
  const auto found = answer(market, job_of(60 * kHour), question, candidates);
  ENSURE(found.ok(), "the question has an answer");
  return {0, found.value().paths, std::nullopt};
}

void print(const PlanBenchOptions& options, const char* what, std::uint32_t round,
           const Figures& figures) {
  if (options.json) {
    fmt::print(
        R"({{"kind": "{}", "round": {}, "cpu_seconds": {:.4f}, "paths": {}{}}})"
        "\n",
        what, round, figures.cpu_s, figures.paths,
        figures.losses ? fmt::format(R"(, "losses_of_a_path": {:.3f})", *figures.losses) : "");
  } else {
    fmt::print("{:<10} {:>5}  {:>8.3f} s  {:>8} paths{}\n", what, round, figures.cpu_s,
               figures.paths,
               figures.losses ? fmt::format(", {:.1f} losses each", *figures.losses) : "");
  }
}

cli::CommandSpec plan_spec() {
  cli::CommandSpec spec;
  spec.name = "bench plan";
  spec.help = "CPU time of the planner: paths of a job, and a question with 500 candidates";
  spec.options = {{"rounds", "N", "measurements of each (5)"}, {"json", "", "JSON lines"}};
  return spec;
}

}  // namespace

int bench_plan(const PlanBenchOptions& options) {
  if (options.json) {
    fmt::print("{}\n", machine_line(""));
  }
  const planner::Market market = invented_market();
  for (std::uint32_t round = 1; round <= options.rounds; ++round) {
    print(options, "paths", round, timed([&] { return of_paths(market); }));
    print(options, "policy", round, timed([&] { return of_policy(market); }));
    print(options, "question", round, timed([&] { return of_question(market); }));
  }
  return engine::kExitDone;
}

BenchCommand plan_command() {
  return make_command(
      plan_spec(), [](const cli::ParsedArguments& arguments, BenchContext& context) {
        PlanBenchOptions options;
        options.json = arguments.has("json");
        const Result<void> read = cli::read_number(arguments, "rounds", options.rounds);
        return read.ok() ? bench_plan(options) : context.complain(read.error());
      });
}

}  // namespace mayfly::bench
