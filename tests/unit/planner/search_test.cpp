// The search over invented markets whose best plans are known.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "planner/search/advice.hpp"
#include "planner/search/amounts.hpp"
#include "planner/search/question.hpp"
#include "planner/search/scenario.hpp"
#include "tests/unit/planner/invented_market.hpp"

namespace mayfly::planner {
namespace {

using test_support::job_of;
using test_support::kHour;
using test_support::market_of;
using test_support::on_demand_offer;
using test_support::spot_offer;
using test_support::workers_on;
using testing::HasSubstr;

/// Two machines (the second one is twice as fast) on spot in two zones, and the first one on
/// demand.
Market two_by_two() {
  return market_of({spot_offer(0.25, LifetimeTable::exponential(6 * kHour), 80, 0, 0),
                    spot_offer(0.28, LifetimeTable::exponential(20 * kHour), 80, 1, 0),
                    spot_offer(0.70, LifetimeTable::exponential(12 * kHour), 60, 0, 1),
                    spot_offer(0.62, LifetimeTable::exponential(3 * kHour), 60, 1, 1),
                    on_demand_offer(0.72, 75, 0, 0)},
                   2, 2);
}

Question by_deadline(double hours) {
  Question question;
  question.deadline_s = hours * kHour;
  question.workers_most = 8;
  return question;
}

TEST(Search, WithoutLossesTheBestPlanIsThatOfArithmetic) {
  // 24 worker-hours within 3.5 h. Seven workers of machine 0 are enough, and cost 24 * 0.3. Four
  // workers of machine 1 are twice as fast each, and cost only 24 * 0.5 / 2.
  const Market market = market_of(
      {spot_offer(0.3, LifetimeTable(), 0, 0, 0), spot_offer(0.5, LifetimeTable(), 0, 0, 1)}, 1, 2);
  const Question question = by_deadline(3.5);
  const auto result = answer(market, job_of(24), question, candidates_of(market, question));
  ASSERT_TRUE(result.ok());
  const Row* chosen = result.value().chosen();
  ASSERT_NE(chosen, nullptr);
  EXPECT_EQ(chosen->candidate.offers, std::vector<std::size_t>{1});
  EXPECT_NEAR(chosen->summary.cost.mean, 24 * 0.5 / 2, 1e-6);
  EXPECT_GE(chosen->candidate.workers, 4U);
  EXPECT_LE(chosen->summary.time_s.mean, 3.5 * kHour);
  for (const Row& row : result.value().rows) {
    EXPECT_EQ(row.keeps_limits, row.undisturbed_s <= 3.5 * kHour)
        << describe(market, row.candidate);
  }
}

TEST(Search, ComposesTwoMachinesWhereOneAloneIsTooSlowOrTooDear) {
  // 24 worker-hours within 4 h: five workers of machine 0 are too slow, and more than five are not
  // allowed. Four of them and one worker of machine 1, which is twice as fast and three times as
  // dear, are just enough.
  const Market market = market_of(
      {spot_offer(0.3, LifetimeTable(), 0, 0, 0), spot_offer(0.9, LifetimeTable(), 0, 0, 1)}, 1, 2);
  Question question = by_deadline(4);
  question.workers_most = 5;
  const auto result = answer(market, job_of(24), question, candidates_of(market, question));
  ASSERT_TRUE(result.ok());
  const Row* chosen = result.value().chosen();
  ASSERT_NE(chosen, nullptr);
  EXPECT_EQ(chosen->candidate.composition, (std::vector<std::uint32_t>{4, 1}));
  EXPECT_NEAR(chosen->summary.time_s.mean, 4 * kHour, 1e-6);
  EXPECT_NEAR(chosen->summary.cost.mean, 4 * (4 * 0.3 + 0.9), 1e-6);
  EXPECT_EQ(describe(market, chosen->candidate), "4 x m0, spot in z0 + 1 x m1, spot in z0");
}

TEST(Search, TheBudgetOfAnHourMustAllowTheFloorOnDemandToo) {
  const Market market =
      market_of({spot_offer(0.3, LifetimeTable(), 0, 0, 0), on_demand_offer(0.9, 0, 0, 0)}, 1, 1);
  Question question;
  question.budget_per_hour = 2;
  Candidate mixed;
  mixed.offers = {0, 1};
  mixed.workers = 4;
  mixed.on_demand_floor = 1;
  EXPECT_TRUE(has_room(market, question, mixed));
  mixed.on_demand_floor = 2;
  EXPECT_FALSE(has_room(market, question, mixed)) << "four on spot would cost 1.2";
  question.budget_per_hour = 2.4;
  EXPECT_TRUE(has_room(market, question, mixed));
}

TEST(Search, SpreadOverZonesFewerAreLostAtOnce) {
  Market market = market_of(
      {spot_offer(0.3, LifetimeTable(), 0, 0), spot_offer(0.3, LifetimeTable(), 0, 1)}, 2);
  for (ZoneModel& zone : market.zones) {
    zone.shocks = {0.5, 1.0, {}, 0};
  }
  const JobModel job = job_of(40);
  Candidate spread = workers_on({0, 1}, 4);
  spread.composition = {2, 2};
  Question question;
  const std::vector<Candidate> candidates = candidates_of(market, question);
  EXPECT_NE(std::ranges::find(candidates, spread), candidates.end());
  const Row together = evaluate(market, job, question, workers_on({0, 1}, 4), 400);
  const Row apart = evaluate(market, job, question, spread, 400);
  EXPECT_LT(apart.summary.all_lost, 0.5 * together.summary.all_lost);
}

TEST(Search, ChosenPlanIsNearTheBestInHindsight) {
  // The true best: each candidate is simulated on many paths with other random numbers.
  const Market market = two_by_two();
  const JobModel job = job_of(30);
  for (const double hours : {4.5, 8.0}) {
    const Question question = by_deadline(hours);
    const std::vector<Candidate> candidates = candidates_of(market, question);
    const auto result = answer(market, job, question, candidates);
    ASSERT_TRUE(result.ok()) << result.error().detail;
    ASSERT_NE(result.value().chosen(), nullptr);
    Question truth = question;
    truth.seed = 77;
    double best = kNever;
    for (const Candidate& candidate : candidates) {
      const Row row = evaluate(market, job, truth, candidate, 1000);
      if (row.summary.reached.value >= question.probability) {
        best = std::min(best, row.summary.cost.mean);
      }
    }
    const Row chosen = evaluate(market, job, truth, result.value().chosen()->candidate, 10000);
    EXPECT_LE(chosen.summary.cost.mean, 1.03 * best) << hours << " h";
    EXPECT_GE(chosen.summary.in_time.value, question.probability - 0.015) << hours << " h";
  }
}

TEST(Search, SameBytesOnAnyNumberOfThreads) {
  const Market market = two_by_two();
  const JobModel job = job_of(30);
  Question question = by_deadline(6);
  question.paths_most = 800;
  const auto candidates = candidates_of(market, question);
  const auto alone = answer(market, job, question, candidates);
  question.for_each = [](std::size_t count, const std::function<void(std::size_t)>& task) {
    std::vector<std::thread> threads;
    for (std::size_t worker = 0; worker < 3; ++worker) {
      threads.emplace_back([&, worker] {
        for (std::size_t i = worker; i < count; i += 3) {
          task(i);
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  };
  const auto together = answer(market, job, question, candidates);
  ASSERT_TRUE(alone.ok() && together.ok());
  ASSERT_EQ(alone.value().rows.size(), together.value().rows.size());
  for (std::size_t i = 0; i < alone.value().rows.size(); ++i) {
    EXPECT_EQ(alone.value().rows[i].candidate, together.value().rows[i].candidate);
    EXPECT_EQ(alone.value().rows[i].summary.cost.mean, together.value().rows[i].summary.cost.mean);
    EXPECT_EQ(alone.value().rows[i].summary.time_s.high,
              together.value().rows[i].summary.time_s.high);
  }
}

TEST(Search, FrontHasEveryPlanThatNoneBeats) {
  const Market market = two_by_two();
  Question question;
  question.workers_most = 6;
  question.goal = Goal::kFastest;
  question.accuracy = [](const Candidate& candidate) { return 0.93 - 0.005 * candidate.workers; };
  const auto result = answer(market, job_of(12), question, candidates_of(market, question));
  ASSERT_TRUE(result.ok());
  const std::vector<Row>& rows = result.value().rows;
  std::size_t on_front = 0;
  for (const Row& row : rows) {
    const bool is_beaten = std::ranges::any_of(rows, [&](const Row& other) {
      return other.summary.time_s.mean < row.summary.time_s.mean &&
             other.summary.cost.mean<row.summary.cost.mean&& * other.accuracy> * row.accuracy;
    });
    EXPECT_FALSE(row.is_on_front && is_beaten) << describe(market, row.candidate);
    on_front += row.is_on_front ? 1 : 0;
  }
  EXPECT_TRUE(rows.front().is_on_front);
  EXPECT_GT(on_front, 6U);  // jobs with fewer workers are more accurate
}

TEST(Search, LimitsOutOfReachAreOneLine) {
  const Market market = two_by_two();
  Question question = by_deadline(0.5);
  auto result = answer(market, job_of(30), question, candidates_of(market, question));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Errc::kInvalidInput);
  EXPECT_THAT(result.error().detail, HasSubstr("within 30.00 min: the fastest, 8 x m1"));
  question = {};
  question.budget = 1;
  result = answer(market, job_of(30), question, candidates_of(market, question));
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().detail, HasSubstr("at most 1.00"));
}

TEST(Search, ObstaclesAreNamed) {
  // Two workers need 2 h of 2.2 h and 500 s to start: a loss, with another start, is too much.
  Market lossy = market_of({spot_offer(1, LifetimeTable::exponential(2 * kHour), 500)});
  Question question = by_deadline(2.2);
  Candidate two = workers_on({0}, 2);
  two.checkpoint_every_s = 60;
  EXPECT_EQ(evaluate(lossy, job_of(4), question, two, 400).obstacle, Obstacle::kLosses);
  Market scarce = market_of({spot_offer(1, LifetimeTable(), 30)});
  scarce.offers[0].refused = 0.9;
  scarce.offers[0].stock_out = QuantileTable({3600});
  EXPECT_EQ(evaluate(scarce, job_of(4), question, workers_on({0}, 2), 400).obstacle,
            Obstacle::kStockOut);
  EXPECT_EQ(evaluate(scarce, job_of(5), question, workers_on({0}, 2), 400).obstacle,
            Obstacle::kSpeed);
  question.budget = 2;
  EXPECT_EQ(evaluate(market_of({spot_offer(1, LifetimeTable(), 30)}), job_of(4), question,
                     workers_on({0}, 2), 400)
                .obstacle,
            Obstacle::kPrice);
}

TEST(Search, JobWithABudgetMayBeStoppedByItAndNeverCostsMore) {
  // Four workers for 10 h at 0.25 per hour cost 10. Losses make the job longer and dearer.
  Market market = market_of({spot_offer(0.25, LifetimeTable::exponential(4 * kHour), 300)});
  market.zones[0].shocks = {0.1, 1.0, {}, 0};
  Question question;
  question.checkpoint_every_s = 3600;
  question.budget = 11;
  Candidate candidate = workers_on({0}, 4);
  candidate.checkpoint_every_s = question.checkpoint_every_s;
  const Row row = evaluate(market, job_of(40), question, candidate, 800);
  EXPECT_GT(row.summary.stopped.value, 0.1);
  EXPECT_LT(row.summary.stopped.value, 0.9);
  EXPECT_NEAR(row.summary.stopped.value + row.summary.finished.value, 1, 1e-9);
  EXPECT_EQ(row.obstacle, Obstacle::kPrice);
  EXPECT_LE(row.summary.cost.high, 11);
  question.budget = 100;
  EXPECT_EQ(evaluate(market, job_of(40), question, candidate, 800).summary.stopped.value, 0);
}

TEST(Search, CandidatesWithoutASpeedAreTakenOut) {
  const Market market = two_by_two();
  JobModel job = job_of(24);
  job.speed = [known = job.speed](std::span<const std::uint32_t> workers) {
    return workers[1] > 2 ? 0.0 : known(workers);
  };
  std::vector<Candidate> candidates = candidates_of(market, by_deadline(4));
  const std::size_t before = candidates.size();
  const std::vector<Candidate> unknown = take_unknown_speeds(market, job, candidates);
  EXPECT_FALSE(unknown.empty());
  EXPECT_EQ(candidates.size() + unknown.size(), before);
  for (const Candidate& candidate : unknown) {
    EXPECT_GT(candidate.workers, 2U);
  }
  EXPECT_TRUE(answer(market, job, by_deadline(8), candidates).ok());
}

TEST(Search, FallingBackKeepsADeadlineThatSpotAloneMisses) {
  Market market = market_of(
      {spot_offer(0.2, LifetimeTable::exponential(2 * kHour), 120), on_demand_offer(0.7, 120)});
  market.offers[0].refused = 0.8;
  market.offers[0].stock_out = QuantileTable({600, 2 * kHour});
  const Question question = by_deadline(5);
  const JobModel job = job_of(16);
  Candidate spot = workers_on({0}, 4);
  spot.checkpoint_every_s = 300;
  Candidate both = spot;
  both.offers = {0, 1};
  both.falls_back = true;
  Candidate on_demand = spot;
  on_demand.offers = {1};
  const Row alone = evaluate(market, job, question, spot, 400);
  const Row fallen = evaluate(market, job, question, both, 400);
  const Row safe = evaluate(market, job, question, on_demand, 400);
  EXPECT_LT(alone.summary.in_time.value, 0.6);
  EXPECT_GT(fallen.summary.in_time.value, 0.95);
  EXPECT_LT(fallen.summary.cost.mean, safe.summary.cost.mean);
}

TEST(Scenario, OtherPricesScaleTheCostAndNothingElse) {
  const Market market = two_by_two();
  const JobModel job = job_of(30);
  Scenario twice;
  twice.price_factor = 2;
  const Candidate candidate = workers_on({0, 1}, 6);
  const Row base = evaluate(market, job, {}, candidate, 200);
  const Row dear = evaluate(changed(market, twice), changed(job, twice), {}, candidate, 200);
  EXPECT_DOUBLE_EQ(dear.summary.cost.mean, 2 * base.summary.cost.mean);
  EXPECT_EQ(dear.summary.time_s.mean, base.summary.time_s.mean);
  Scenario stops;
  stops.recovery_s = 120;
  const Row slow = evaluate(changed(market, stops), changed(job, stops), {}, candidate, 200);
  EXPECT_NEAR(slow.summary.time_s.mean - base.summary.time_s.mean, 120 * base.summary.losses,
              60 * base.summary.losses);
  Scenario risky;
  risky.hazard_factor = 3;
  const Row lossy = evaluate(changed(market, risky), changed(job, risky), {}, candidate, 200);
  EXPECT_NEAR(lossy.summary.losses / base.summary.losses, 3, 0.4);
}

TEST(Advice, HotSparesDoNotPayWhereAReplacementIsQuick) {
  const Market market = two_by_two();
  const JobModel job = job_of(30);
  const Question question = by_deadline(8);
  const auto result = answer(market, job, question, candidates_of(market, question));
  ASSERT_TRUE(result.ok());
  const Advice advice = advise(market, job, question, result.value());
  ASSERT_EQ(advice.spares.size(), 4U);
  const Summary& none = advice.spares[0].row.summary;
  const Summary& spare = advice.spares[1].row.summary;
  const Summary& more = advice.spares[3].row.summary;
  EXPECT_GT(spare.cost.mean, none.cost.mean);
  EXPECT_LT(more.time_s.mean, spare.time_s.mean);  // one more worker is worth more than a spare
  EXPECT_THAT(advice.reason, HasSubstr("is the cheapest of the"));
  EXPECT_GE(advice.changes.size(), 4U);
  EXPECT_FALSE(advice.zones_differ.empty());
  EXPECT_GE(advice.on_demand.size(), 2U);
}

TEST(Advice, NamesNoServersThatTheLimitsDoNotAllow) {
  Market market = market_of(
      {spot_offer(0.2, LifetimeTable::exponential(2 * kHour), 60), on_demand_offer(0.7, 60)});
  market.offers[0].workers_most = 4;
  market.offers[1].workers_most = 1;
  const JobModel job = job_of(8);
  Question question;
  const auto chosen = [&](std::uint32_t workers) {
    return answer(market, job, question, {workers_on({0}, workers)}).value();
  };
  EXPECT_EQ(advise(market, job, question, chosen(3)).spares.size(), 3U) << "no second spare";
  const Advice advice = advise(market, job, question, chosen(4));
  EXPECT_TRUE(advice.spares.empty());
  EXPECT_TRUE(advice.spares_worth.empty());
  EXPECT_EQ(advice.on_demand.size(), 5U) << "none to all: what is not to be had is taken on spot";
  question.budget_per_hour = 4 * 0.2 + 0.1;
  EXPECT_EQ(advise(market, job, question, chosen(4)).on_demand.size(), 1U) << "too dear";
}

TEST(Advice, SimulatedCheckpointIntervalIsNearThatOfDaly) {
  // Shocks that take all servers, every three hours on average.
  Market market = market_of({spot_offer(1, LifetimeTable(), 60)});
  market.zones[0].shocks = {1.0 / 3, 1, {}, 0};
  JobModel job = job_of(64);
  job.checkpoint_s = 10;
  const CheckpointAdvice advice = advise_checkpoints(market, job, {}, workers_on({0}, 8), 600);
  EXPECT_FALSE(advice.is_bound);
  EXPECT_NEAR(advice.mean_to_loss_s, 3 * kHour, 0.1 * 3 * kHour);
  EXPECT_NEAR(advice.young_s, std::sqrt(2 * 10 * 3 * kHour), 30);
  EXPECT_GE(advice.best_s, 0.4 * advice.daly_s);  // the optimum is flat
  EXPECT_LE(advice.best_s, 2.5 * advice.daly_s);
}

TEST(Advice, OfHoursFindsTheCalmOnes) {
  Market market = market_of({spot_offer(1, LifetimeTable::exponential(2 * kHour), 300)});
  HourFactors factors{};
  factors.fill(3);
  for (std::size_t hour = 0; hour < 8; ++hour) {
    factors.at(hour) = 0;
  }
  market.offers[0].by_hour = factors;
  const JobModel job = job_of(16);
  const Question question;
  const auto result = answer(market, job, question, {workers_on({0}, 4)});
  ASSERT_TRUE(result.ok());
  const Advice advice = advise(market, job, question, result.value());
  ASSERT_EQ(advice.hours.size(), 24U);
  EXPECT_EQ(advice.hours[2].row.summary.losses, 0);  // it ends at 06:05
  EXPECT_GT(advice.hours[12].row.summary.losses, 10);
}

TEST(Amounts, OfShortAndCheapJobsKeepTheirDigits) {
  EXPECT_EQ(time_words(9000), "2.50 h");
  EXPECT_EQ(time_words(3600), "1.00 h");
  EXPECT_EQ(time_words(3599), "59.98 min");
  EXPECT_EQ(time_words(94.3), "94.30 s");
  EXPECT_EQ(time_in(time_unit_for(600), 30), "0.50");
  EXPECT_EQ(money_words(12.345), "12.35");
  EXPECT_EQ(money_words(0.08546), "0.0855");
  EXPECT_EQ(money_words(-0.25), "-0.250");
  EXPECT_EQ(effect_words(9000, 0.25), "saves 2.50 h and costs 0.250 more");
  EXPECT_EQ(effect_words(-18.69, -0.25), "takes 18.69 s more and costs 0.250 less");
  EXPECT_EQ(money_words(0), "0.00");
}

}  // namespace
}  // namespace mayfly::planner
