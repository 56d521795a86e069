// Compares the distributions of the simulation with their closed forms.

#include "planner/distributions.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.hpp"
#include "planner/simulation/shocks.hpp"

namespace mayfly::planner {
namespace {

constexpr double kHourOfTable = 3600;

LifetimeTable bathtub() {
  return LifetimeTable({{1 * kHourOfTable, 0.25},
                        {8 * kHourOfTable, 0.4},
                        {23 * kHourOfTable, 0.6},
                        {24 * kHourOfTable, 1.2}},
                       24 * kHourOfTable);
}

TEST(QuantileTable, IsLinearBetweenItsValues) {
  const QuantileTable table({10, 20, 40});
  EXPECT_DOUBLE_EQ(table.quantile(0), 10);
  EXPECT_DOUBLE_EQ(table.quantile(0.25), 15);
  EXPECT_DOUBLE_EQ(table.quantile(0.75), 30);
  EXPECT_DOUBLE_EQ(table.quantile(1), 40);
  EXPECT_DOUBLE_EQ(table.mean(), 22.5);
  EXPECT_DOUBLE_EQ(table.scaled(2).mean(), 45);
  EXPECT_DOUBLE_EQ(QuantileTable({7}).mean(), 7);
}

TEST(LifetimeTable, SamplesAreAtTheAgeOfTheirSurvival) {
  const LifetimeTable table = bathtub();
  for (const double u : {0.01, 0.2, 0.3, 0.5, 0.69}) {
    const double age = table.sample(u);
    ASSERT_LT(age, table.cap());
    EXPECT_NEAR(table.survival(age), 1 - u, 1e-12);
  }
  EXPECT_EQ(table.sample(0.999), table.cap());
  EXPECT_EQ(table.survival(table.cap()), 0);
}

TEST(LifetimeTable, SamplesOfAnAgeAreThoseOfTheServersThatReachedIt) {
  const LifetimeTable table = bathtub();
  const double age = 5 * kHourOfTable;
  const double end = table.sample(0.3, age);
  EXPECT_NEAR(table.survival(end) / table.survival(age), 0.7, 1e-12);
  EXPECT_GE(table.sample(0, age), age);
}

TEST(LifetimeTable, MeanIsThatOfItsSamples) {
  const CounterRandom random(7);
  for (const LifetimeTable& table : {bathtub(), LifetimeTable::exponential(5000),
                                     LifetimeTable({{100, 0.0}, {200, 1.0}}, 5000)}) {
    double sum = 0;
    double squares = 0;
    constexpr int kSamples = 20000;
    for (int i = 0; i < kSamples; ++i) {
      const double age = table.sample(random.unit(static_cast<std::uint64_t>(i)));
      sum += age;
      squares += age * age;
    }
    const double mean = sum / kSamples;
    const double error = std::sqrt((squares / kSamples - mean * mean) / kSamples);
    EXPECT_NEAR(mean, table.mean(), 4 * error);
  }
  EXPECT_EQ(LifetimeTable().mean(), kNever);
}

TEST(LifetimeTable, SurvivalOfAFittedCurveIsKept) {
  const std::vector<double> ages = {3600, 7200, 36000};
  const std::vector<double> shares = {0.8, 0.7, 0.65};
  const LifetimeTable table = LifetimeTable::of_survival(ages, shares, 86400);
  for (std::size_t i = 0; i < ages.size(); ++i) {
    EXPECT_NEAR(table.survival(ages[i]), shares[i], 1e-12);
  }
  EXPECT_NEAR(table.scaled(3).survival(3600), 0.8 * 0.8 * 0.8, 1e-12);
}

TEST(LifetimeTable, SurvivalBeforeTheCapIsThatOnTheWayToALaterAge) {
  const std::vector<double> ages = {86400};
  const std::vector<double> shares = {0.5};
  const LifetimeTable table = LifetimeTable::of_survival(ages, shares, 43200);
  EXPECT_NEAR(table.survival(40000), std::pow(0.5, 40000.0 / 86400), 1e-12);
  EXPECT_EQ(table.survival(43200), 0);
  const std::vector<double> two_ages = {3600, 10800, 20000};
  const std::vector<double> two_shares = {0.8, 0.4, 0.1};
  const LifetimeTable two = LifetimeTable::of_survival(two_ages, two_shares, 7200);
  EXPECT_NEAR(two.survival(3600), 0.8, 1e-12);
  EXPECT_NEAR(two.survival(7199), 0.8 * std::pow(0.5, 3599.0 / 7200), 1e-12);
  EXPECT_NEAR(two.hazard(7200), std::log(1 / 0.8) + std::log(2) / 2, 1e-12);
}

TEST(LifetimeTable, EqualFactorsOfAllHoursChangeNothing) {
  const LifetimeTable table = bathtub();
  HourFactors same{};
  same.fill(2);
  for (const double u : {0.1, 0.4, 0.8}) {
    EXPECT_NEAR(table.sample_by_hour(u, 0, 1, 12345, same), table.sample(u, 0, 2), 1e-6);
  }
}

TEST(LifetimeTable, DaysAfterTheLastKnotAreSkipped) {
  HourFactors factors{};
  factors.fill(0.5);
  factors[7] = 12.5;  // the mean is 1
  constexpr double kYears = 50 * 365 * 86400.0;
  const LifetimeTable rare = LifetimeTable({{3600, 3600 / kYears}});
  for (const double u : {0.1, 0.5, 0.9}) {
    EXPECT_NEAR(rare.sample_by_hour(u, 0, 1, 5000, factors), rare.sample(u), 86400);
  }
  EXPECT_EQ(rare.sample_by_hour(0.5, 0, 1, 0, HourFactors{}), kNever);
  EXPECT_EQ(rare.sample_by_hour(0.5, 0, 1e-20, 0, factors), kNever) << "as --hazard x1e-20 is";
  EXPECT_EQ(LifetimeTable().sample_by_hour(0.5, 0, 1, 0, factors), kNever);
}

TEST(LifetimeTable, NoServerEndsInAnHourWithoutHazard) {
  HourFactors factors{};
  factors[3] = 1;  // losses only from 03:00 to 04:00
  const LifetimeTable table = LifetimeTable::exponential(3600);
  const CounterRandom random(3);
  for (std::uint64_t i = 0; i < 500; ++i) {
    const double clock = 86400 * random.unit(2 * i);
    const double end = table.sample_by_hour(random.unit(2 * i + 1), 0, 1, clock, factors);
    EXPECT_EQ(std::floor(std::fmod(clock + end, 86400) / 3600), 3);
  }
}

TEST(Shocks, ComeAtTheirRate) {
  ShockModel model;
  model.per_hour = 2;
  model.share = 0.5;
  ShockStream stream(model, CounterRandom(5));
  int count = 0;
  for (; stream.next().at_s < 1000 * kHourOfTable; stream.pop()) {
    EXPECT_EQ(stream.next().number, static_cast<std::uint64_t>(count++));
  }
  EXPECT_NEAR(count, 2000, 4 * std::sqrt(2000));
  EXPECT_EQ(ShockStream(ShockModel{}, CounterRandom(5)).next().at_s, kNever);
}

TEST(Shocks, OfATraceKeepTheirBursts) {
  std::vector<TraceEvent> trace;
  for (int i = 0; i < 8; ++i) {
    trace.push_back({0, true, "n" + std::to_string(i)});
  }
  for (int i = 0; i < 6; ++i) {  // six of eight servers are lost within a second
    trace.push_back({4000.1 + 0.1 * i, false, "n" + std::to_string(i)});
  }
  trace.push_back({5000, false, "n6"});
  trace.push_back({7300, true, "n7"});
  const std::vector<std::vector<Shock>> blocks = shock_blocks(trace, 3600);
  ASSERT_EQ(blocks.size(), 2U);
  EXPECT_TRUE(blocks[0].empty());
  ASSERT_EQ(blocks[1].size(), 2U);
  EXPECT_DOUBLE_EQ(blocks[1][0].share, 0.75);
  EXPECT_NEAR(blocks[1][0].at_s, 400.1, 1e-9);
  EXPECT_DOUBLE_EQ(blocks[1][1].share, 0.5);

  ShockModel model;
  model.blocks = blocks;
  model.block_s = 3600;
  ShockStream stream(model, CounterRandom(1));
  double before = -1;
  for (int i = 0; i < 100; ++i, stream.pop()) {
    const Shock first = stream.next();
    EXPECT_GT(first.at_s, before);
    EXPECT_EQ(first.share, 0.75);
    stream.pop();
    EXPECT_NEAR(stream.next().at_s - first.at_s, 999.9, 1e-6);  // a block keeps its intervals
    before = stream.next().at_s;
  }
}

TEST(LifetimeTable, OfAServerOfSomeAge) {
  const LifetimeTable table({{1, 0.2}, {2, 0.3}, {3, 0.3}}, 3);
  EXPECT_NEAR(table.survival(1.5), std::exp(-0.25), 1e-12);
  EXPECT_NEAR(table.sample(0.05, 1), 1 - std::log(0.95) / 0.1, 1e-9);
  EXPECT_EQ(table.sample(0.9), 3) << "lives to the cap";
  EXPECT_NEAR(LifetimeTable({{3, 0}}, 3).mean(1), 3, 1e-9);
  // The hazard is 0.1 from age 1 to age 2, and then 0 until the cap.
  EXPECT_NEAR(table.mean(1), 1 + (1 - std::exp(-0.1)) / 0.1 + std::exp(-0.1), 1e-9);
}

}  // namespace
}  // namespace mayfly::planner
