// Compares the simulation of a job with closed forms, within its own Monte Carlo error, and with
// the product's replacement policy, path by path.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "planner/simulation/closed_forms.hpp"
#include "planner/simulation/earliest.hpp"
#include "planner/simulation/path.hpp"
#include "planner/simulation/policy_path.hpp"
#include "planner/simulation/summary.hpp"
#include "tests/unit/planner/invented_market.hpp"

namespace mayfly::planner {
namespace {

using test_support::job_of;
using test_support::kHour;
using test_support::market_of;
using test_support::on_demand_offer;
using test_support::spot_offer;
using test_support::workers_on;

constexpr double kErrors = 4;  // the allowed difference, in standard errors
constexpr double kGather = 0.02;

TEST(Simulation, WithoutHazardAndStartUpTakesTheWorkOverTheSpeed) {
  const Market market = market_of({spot_offer(0.5, LifetimeTable(), 0)});
  const JobModel job = job_of(24);
  for (const std::uint32_t n : {1U, 2U, 7U}) {
    PathRunner runner(market, job, workers_on({0}, n), 100 * kHour);
    const PathOutcome path = runner.run(1, 0);
    EXPECT_NEAR(path.finish_s, 24 * kHour / n, 1e-6);
    EXPECT_NEAR(path.cost, 0.5 * 24, 1e-9);
    EXPECT_EQ(path.losses, 0U);
  }
}

TEST(Simulation, StartUpDelaysByItsLengthAndIsBilled) {
  const Market market = market_of({spot_offer(1, LifetimeTable(), 90)});
  JobModel job = job_of(4);
  PathRunner runner(market, job, workers_on({0}, 4), 100 * kHour);
  EXPECT_NEAR(runner.run(1, 0).finish_s, kHour + 90, 1e-6);
  EXPECT_NEAR(runner.run(1, 0).cost, 4 * (kHour + 90) / kHour, 1e-9);
  EXPECT_NEAR(runner.run(1, 0).starting_s, 90, 1e-6);
  job.billing.from_running = true;
  EXPECT_NEAR(PathRunner(market, job, workers_on({0}, 4), 100 * kHour).run(1, 0).cost, 4, 1e-9);
}

TEST(Simulation, TheFirstStepWaitsForAllWorkersButNotForEver) {
  const Market market =
      market_of({spot_offer(1, LifetimeTable(), 60), spot_offer(2, LifetimeTable(), 400)});
  JobModel job = job_of(2);
  Market limited = market;
  limited.offers[0].workers_most = 1;
  const Candidate two = workers_on({0, 1}, 2);
  EXPECT_NEAR(PathRunner(limited, job, two, 100 * kHour).run(1, 0).finish_s, kHour + 400, 1e-6);
  job.first_wait_s = 100;
  const PathOutcome early = PathRunner(limited, job, two, 100 * kHour).run(1, 0);
  EXPECT_NEAR(early.finish_s, 160 + 240 + kHour - 120 + job.join_stop_s, 1e-6);
  EXPECT_NEAR(early.starting_s, 160 + 120, 1e-6);
}

TEST(Simulation, NoOfferHasMoreServersThanItsLimitNorAllMoreThanTheHourlyBudget) {
  Market market = market_of({spot_offer(1, LifetimeTable(), 0), spot_offer(2, LifetimeTable(), 0)});
  market.offers[0].workers_most = 3;
  JobModel job = job_of(4);
  EXPECT_NEAR(PathRunner(market, job, workers_on({0, 1}, 4), 100 * kHour).run(1, 0).cost, 3 + 2,
              1e-9);
  job.budget_per_hour = 4;
  const PathOutcome poor = PathRunner(market, job, workers_on({0, 1}, 4), 100 * kHour).run(1, 0);
  EXPECT_NEAR(poor.finish_s, job.first_wait_s + 4 * kHour / 3, 1e-6);
  EXPECT_NEAR(poor.cost, 3 * poor.finish_s / kHour, 1e-9);
}

TEST(Simulation, ShareOfPathsWithoutALossIsTheProductOfTheSurvivals) {
  const LifetimeTable lifetime(
      {{kHour, 0.23}, {3 * kHour, 0.39}, {16 * kHour, 0.6}, {24 * kHour, 0.7}}, 24 * kHour);
  const Market market = market_of({spot_offer(1, lifetime, 0)});
  const JobModel job = job_of(12);
  constexpr int kPaths = 4000;
  int unlost = 0;
  for (const PathOutcome& path :
       simulate(market, job, workers_on({0}, 4), 100 * kHour, 1, 0, kPaths)) {
    unlost += path.losses == 0 ? 1 : 0;
  }
  const double expected = std::pow(lifetime.survival(3 * kHour), 4);
  const double error = std::sqrt(expected * (1 - expected) / kPaths);
  EXPECT_NEAR(static_cast<double>(unlost) / kPaths, expected, kErrors * error);
}

/// The mean of a value over the paths, and the standard error of this mean.
template <typename Value>
Spread mean_over(const std::vector<PathOutcome>& paths, Value value) {
  Spread spread;
  for (const PathOutcome& path : paths) {
    spread.mean += value(path) / static_cast<double>(paths.size());
  }
  double squares = 0;
  for (const PathOutcome& path : paths) {
    squares += std::pow(value(path) - spread.mean, 2);
  }
  spread.error = std::sqrt(squares) / static_cast<double>(paths.size());
  return spread;
}

/// Expected losses of one worker by `until_s` if its server is replaced after `down_s`: the renewal
/// function m(t) = F(t) + integral over dF(a) of m(t - a - down), by steps of `step_s` (its error
/// is of that order).
double losses_replaced(const LifetimeTable& server, double down_s, double until_s, double step_s) {
  const auto steps = static_cast<std::size_t>(std::ceil(until_s / step_s));
  const auto down = static_cast<std::size_t>(std::llround(down_s / step_s));
  std::vector<double> lost(steps + 1, 0);  // F at the steps
  std::vector<double> mean(steps + 1, 0);
  for (std::size_t t = 1; t <= steps; ++t) {
    lost[t] = 1 - server.survival(static_cast<double>(t) * step_s);
    mean[t] = lost[t];
    for (std::size_t age = 1; age + down < t; ++age) {
      mean[t] += (lost[age] - lost[age - 1]) * mean[t - age - down];
    }
  }
  return mean[steps];
}

TEST(Simulation, ExpectedLossesAreTheRenewalFunction) {
  ASSERT_NEAR(losses_replaced(LifetimeTable::exponential(100), 0, 1000, 1), 10, 0.1);
  // A job that cannot be done before the horizon, so that the time is the same on all paths.
  constexpr double kDays = 24 * kHour;
  constexpr double kDown = 300;
  const LifetimeTable lifetime({{kHour, 0.5}, {6 * kHour, 0.7}, {10 * kHour, 2}}, 12 * kHour);
  const Market market = market_of({spot_offer(1, lifetime, kDown)});
  const auto paths = simulate(market, job_of(10000), workers_on({0}, 3), kDays + kDown, 2, 0, 1000);
  const Spread losses = mean_over(paths, [](const PathOutcome& path) { return path.losses; });
  EXPECT_NEAR(losses.mean, 3 * losses_replaced(lifetime, kDown + kGather, kDays, 20),
              kErrors * losses.error + 0.01 * losses.mean);
}

TEST(Simulation, ExponentialLifetimesWithInstantReplacementMatchThePoissonLaw) {
  constexpr double kMean = 2 * kHour;
  const Market market = market_of({spot_offer(1, LifetimeTable::exponential(kMean), 0)});
  const auto paths = simulate(market, job_of(80), workers_on({0}, 8), 100 * kHour, 3, 0, 1000);
  const Spread losses = mean_over(paths, [](const PathOutcome& path) { return path.losses; });
  const Spread time = mean_over(paths, [](const PathOutcome& path) { return path.finish_s; });
  EXPECT_NEAR(losses.mean, 8 * 10 * kHour / kMean, kErrors * losses.error + 0.01);
  // After each loss, one of eight workers is missing until the policy has replaced its server.
  EXPECT_NEAR(time.mean, 10 * kHour + losses.mean * kGather / 8, 0.01);
}

TEST(Simulation, OnePhaseTakesTheWorkOverSpeedAndAvailability) {
  constexpr double kMean = 3 * kHour;
  constexpr double kDown = 600;
  const Market market = market_of({spot_offer(1, LifetimeTable::exponential(kMean), kDown)});
  const auto paths = simulate(market, job_of(800), workers_on({0}, 8), 1000 * kHour, 4, 0, 400);
  const Summary summary = summarise(paths);
  const double up = kMean / (kMean + kDown + kGather);  // share of the time in which a worker runs
  EXPECT_NEAR(summary.time_s.mean, 800 * kHour / (8 * up) + kDown * up,
              kErrors * summary.time_s.error);
}

TEST(Simulation, OneWorkerIsAlternatelyUpAndDown) {
  constexpr double kMean = 2 * kHour;
  constexpr double kDown = 500;
  const Market market = market_of({spot_offer(1, LifetimeTable::exponential(kMean), kDown)});
  // Without checkpoints the loss of the only worker loses all work, so the job has to run from the
  // beginning to the end without one. Its mean time has a closed form: (M + D)(e^(W/M) - 1) + D.
  const auto paths = simulate(market, job_of(2), workers_on({0}, 1), 1000 * kHour, 5, 0, 4000);
  const Summary summary = summarise(paths);
  const double expected = (kMean + kDown + kGather) * (std::exp(2 * kHour / kMean) - 1) + kDown;
  EXPECT_NEAR(summary.time_s.mean, expected, kErrors * summary.time_s.error);
}

TEST(Simulation, CheckpointsKeepWorkAndCostTime) {
  const Market calm = market_of({spot_offer(1, LifetimeTable(), 0)});
  JobModel job = job_of(10);
  job.checkpoint_s = 6;
  Candidate candidate = workers_on({0}, 2);
  candidate.checkpoint_every_s = 594;
  EXPECT_NEAR(PathRunner(calm, job, candidate, 100 * kHour).run(1, 0).finish_s,
              5 * kHour * 600 / 594, 1e-6);
  // A shock takes both servers 1 h 35 min after the start: five minutes of work are lost.
  Market shocked = calm;
  shocked.zones[0].shocks.blocks = {{{5700, 1, 0}}};
  shocked.zones[0].shocks.block_s = 1000 * kHour;
  job.checkpoint_s = 0;
  candidate.checkpoint_every_s = 600;
  const PathOutcome path = PathRunner(shocked, job, candidate, 100 * kHour).run(1, 0);
  EXPECT_EQ(path.losses, 2U);
  EXPECT_EQ(path.all_lost, 1U);
  EXPECT_NEAR(path.redone_s, 300, 1e-6);
  EXPECT_NEAR(path.finish_s, 5 * kHour + 300 + kGather, 1e-6);
}

TEST(Simulation, ATraceWithoutALossIsCalm) {
  ShockModel shocks;
  EXPECT_TRUE(shocks.is_calm());
  shocks.blocks = {{}, {}};
  EXPECT_TRUE(shocks.is_calm()) << "no path has to look for a shock in a million blocks";
  shocks.blocks.push_back({{10, 0.5, 0}});
  EXPECT_FALSE(shocks.is_calm());
}

TEST(Simulation, RecoveryStopsEverybody) {
  // All first servers end after 1,000 s; their successors live a little longer than the job.
  Market market = market_of({spot_offer(1, LifetimeTable({{1, 0}}, 1000), 0)});
  JobModel job = job_of(2);
  job.recovery_s = 120;
  Candidate candidate = workers_on({0}, 4);
  candidate.checkpoint_every_s = 100;
  const PathOutcome path = PathRunner(market, job, candidate, 100 * kHour).run(1, 0);
  EXPECT_EQ(path.losses, 4U);
  EXPECT_EQ(path.all_lost, 1U);
  EXPECT_NEAR(path.finish_s, 1800 + 120, 0.1);
  EXPECT_NEAR(path.stopped_s, 120, 0.1);
}

TEST(Simulation, PathsDoNotDependOnWhatRanBefore) {
  Market market = market_of({spot_offer(0.2, LifetimeTable::exponential(kHour), 80, 0),
                             spot_offer(0.3, LifetimeTable::exponential(5 * kHour), 60, 1)},
                            2);
  market.offers[0].refused = 0.3;
  market.offers[0].stock_out = QuantileTable({60, 600, 1200});
  market.zones[0].shocks = {0.5, 0.6, {}, 0};
  JobModel job = job_of(40);
  job.speed_log_sd = 0.05;
  job.start_up_log_sd = 0.1;
  const Candidate candidate = workers_on({0, 1}, 8);
  const auto all = simulate(market, job, candidate, 100 * kHour, 9, 0, 40);
  for (const std::uint64_t first : {39U, 7U, 20U, 0U}) {
    const auto one = simulate(market, job, candidate, 100 * kHour, 9, first, 1);
    EXPECT_EQ(one.front(), all[first]);
  }
}

/// The random market of this number: markets of all kinds.
Market random_market(std::uint64_t number, const CounterRandom& random) {
  RandomStream draw(random.split(number));
  std::vector<OfferModel> offers;
  const std::size_t count = 1 + draw.below(3);
  for (std::size_t i = 0; i < count; ++i) {
    const double mean = kHour * (0.5 + 10 * draw.unit());
    OfferModel offer =
        spot_offer(0.1 + draw.unit(),
                   draw.below(2) == 0 ? LifetimeTable::exponential(mean)
                                      : LifetimeTable({{kHour, 0.3}, {5 * kHour, 0.4}}, 6 * kHour),
                   0, draw.below(2), draw.below(2));
    offer.start_up = QuantileTable({20, 60 + 60 * draw.unit(), 300});
    offer.join = QuantileTable({5, 20});
    offer.offer.zone = std::to_string(i);
    if (draw.below(2) == 0) {
      offer.refused = 0.5 * draw.unit();
      offer.stock_out = QuantileTable({10, 2000});
    }
    offers.push_back(offer);
  }
  if (draw.below(2) == 0) {
    offers.push_back(on_demand_offer(1 + draw.unit(), 90, 0, draw.below(2)));
  }
  Market market = market_of(std::move(offers), 2, 2);
  if (draw.below(2) == 0) {
    market.zones[0].shocks = {0.4, 0.2 + 0.8 * draw.unit(), {}, 0};
  }
  return market;
}

/// Draws a composition, a number of workers for each offer, in place of the floor.
void compose(Candidate& candidate, RandomStream& draw) {
  candidate.on_demand_floor = 0;
  candidate.composition.assign(candidate.offers.size(), 0);
  for (std::uint32_t i = 0; i < candidate.workers; ++i) {
    ++candidate.composition[draw.below(candidate.offers.size())];
  }
}

TEST(Simulation, FastPathsAreThoseOfTheReplacementPolicy) {
  const CounterRandom random(20);
  int finished = 0;
  std::uint32_t lost = 0;
  std::uint32_t refused = 0;
  int stopped = 0;
  for (std::uint64_t number = 0; number < 120; ++number) {
    Market market = random_market(number, random);
    RandomStream draw(random.split(1000 + number));
    JobModel job = job_of(10 + 60 * draw.unit());
    job.recovery_s = draw.below(2) == 0 ? 0 : 30;
    job.join_stop_s = 0.5;
    job.restore_s = 5;
    job.checkpoint_s = 2;
    job.server_lifetime_s = draw.below(3) == 0 ? 3 * kHour : 24 * kHour;
    Candidate candidate;
    for (std::size_t offer = 0; offer < market.offers.size(); ++offer) {
      candidate.offers.push_back(offer);
    }
    candidate.workers = 1 + static_cast<std::uint32_t>(draw.below(8));
    candidate.spares = draw.below(4) == 0 ? 1 : 0;
    candidate.on_demand_floor = static_cast<std::uint32_t>(draw.below(3));
    candidate.checkpoint_every_s = 300;
    if (number >= 60) {
      compose(candidate, draw);
    }
    if (number % 3 == 0) {
      job.budget = 0.2 * job.work / kHour * draw.unit() + 3;
    }
    if (number % 4 == 1) {
      market.offers[0].workers_most = 1 + static_cast<std::uint32_t>(draw.below(4));
      job.budget_per_hour = number % 8 == 1 ? std::optional(1 + 4 * draw.unit()) : std::nullopt;
    }
    PathRunner runner(market, job, candidate, 60 * kHour);
    for (std::uint64_t path = 0; path < 5; ++path) {
      const PathOutcome fast = runner.run(number, path);
      const PathOutcome exact = run_policy_path(market, job, candidate, 60 * kHour, number, path);
      EXPECT_EQ(fast.losses, exact.losses) << "market " << number << ", path " << path;
      EXPECT_EQ(fast.all_lost, exact.all_lost) << "market " << number << ", path " << path;
      EXPECT_EQ(fast.refusals, exact.refusals) << "market " << number << ", path " << path;
      EXPECT_EQ(fast.finish_s < kNever, exact.finish_s < kNever) << "market " << number;
      EXPECT_EQ(fast.stopped_by_budget, exact.stopped_by_budget) << "market " << number;
      stopped += fast.stopped_by_budget ? 1 : 0;
      if (fast.finish_s < kNever) {
        ++finished;
        EXPECT_NEAR(fast.finish_s, exact.finish_s, 1e-5)
            << "market " << number << ", path " << path;
      }
      EXPECT_NEAR(fast.cost, exact.cost, 1e-5) << "market " << number << ", path " << path;
      lost += fast.losses;
      refused += fast.refusals;
    }
  }
  EXPECT_GT(finished, 200);  // the markets let jobs finish, but do disturb them
  EXPECT_GT(lost, 500U);
  EXPECT_GT(refused, 500U);
  EXPECT_GT(stopped, 20);
}

TEST(Simulation, ABudgetThatIsFarAwayChangesNothing) {
  const CounterRandom random(22);
  for (std::uint64_t number = 0; number < 20; ++number) {
    const Market market = random_market(number, random);
    std::vector<std::size_t> offers(market.offers.size());
    std::iota(offers.begin(), offers.end(), 0);
    JobModel job = job_of(40);
    const Candidate candidate = workers_on(offers, 6);
    const auto without = simulate(market, job, candidate, 60 * kHour, number, 0, 5);
    job.budget = 1e6;
    EXPECT_EQ(simulate(market, job, candidate, 60 * kHour, number, 0, 5), without);
  }
}

TEST(Earliest, IsTheLowestOfThePositionsThatAScanFinds) {
  RandomStream draw(CounterRandom(21));
  Earliest earliest;
  EXPECT_FALSE(earliest.first());
  for (int round = 0; round < 20; ++round) {
    earliest.clear();
    EXPECT_FALSE(earliest.first());
    std::vector<double> plain(1 + draw.below(70), kNever);
    for (int change = 0; change < 300; ++change) {
      const std::size_t position = draw.below(plain.size());
      // Few different instants, so that many are equal.
      plain[position] = draw.below(4) == 0 ? kNever : static_cast<double>(draw.below(6));
      earliest.set(position, plain[position]);
      const auto least = std::ranges::min_element(plain);
      const auto place = static_cast<std::size_t>(least - plain.begin());
      EXPECT_EQ(earliest.first(), *least == kNever ? std::nullopt : std::optional(place));
    }
  }
}

TEST(ClosedForms, YoungAndDalyAgreeForCheapCheckpoints) {
  EXPECT_DOUBLE_EQ(young_interval(2, 10000), 200);
  EXPECT_NEAR(daly_interval(2, 10000), 200 * (1 + 0.01 / 3 + 0.0001 / 9) - 2, 1e-9);
  EXPECT_DOUBLE_EQ(daly_interval(100, 50), 50);
}

}  // namespace
}  // namespace mayfly::planner
