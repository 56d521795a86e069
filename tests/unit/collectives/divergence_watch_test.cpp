#include "collectives/parameter_server/core/divergence_watch.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>

#include "base/random.hpp"

namespace mayfly::parameter_server {
namespace {

constexpr double kUniform = 2.3;  // ten classes

DivergenceOptions options(double factor = 2, std::uint32_t windows = 3) {
  DivergenceOptions made;
  made.falls_back = true;
  made.factor = factor;
  made.windows = windows;
  made.uniform_loss = kUniform;
  made.slices = 4;
  return made;
}

/// So many means of about this loss.
void add(DivergenceWatch& watch, int means, double loss, bool is_judged = true) {
  for (int i = 0; i < 4 * means; ++i) {
    watch.add(2 * loss, 2, 1, is_judged);
  }
}

TEST(DivergenceWatch, TakesWhatIsNotFiniteForAVerdict) {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    DivergenceWatch watch(options());
    add(watch, 3, 2);
    EXPECT_FALSE(watch.doubts());
    watch.add(bad, 2, 1, true);
    EXPECT_TRUE(watch.has_diverged());
    EXPECT_NE(watch.reason().find("not finite"), std::string::npos);
  }
}

TEST(DivergenceWatch, NeedsSeveralHighMeansInARow) {
  DivergenceWatch watch(options());
  add(watch, 20, 1);
  add(watch, 2, 5);
  EXPECT_TRUE(watch.doubts());
  EXPECT_FALSE(watch.has_diverged());
  add(watch, 1, 1);
  EXPECT_FALSE(watch.doubts()) << "it was nothing";
  add(watch, 3, 5);
  EXPECT_TRUE(watch.has_diverged());
  EXPECT_NE(watch.reason().find("after a median of 1"), std::string::npos) << watch.reason();
}

TEST(DivergenceWatch, GoesOnDoubtingAboutALossThatIsOnlySomewhatLower) {
  DivergenceWatch watch(options());
  add(watch, 20, 1);
  add(watch, 2, 5);
  add(watch, 30, 1.8);  // neither high nor low
  EXPECT_TRUE(watch.doubts());
  EXPECT_FALSE(watch.has_diverged());
  add(watch, 1, 5);
  EXPECT_TRUE(watch.has_diverged()) << "the median stands still meanwhile";
}

TEST(DivergenceWatch, OfAJobThatBeginsComparesWithANetworkThatKnowsNothing) {
  DivergenceWatch calm(options());
  add(calm, 20, 2.6);
  EXPECT_FALSE(calm.doubts());
  DivergenceWatch wild(options());
  add(wild, 3, 13.7);
  EXPECT_TRUE(wild.has_diverged());
}

TEST(DivergenceWatch, LetsASmallLossDouble) {
  DivergenceWatch watch(options());
  add(watch, 20, 0.02);
  add(watch, 10, 0.2);
  EXPECT_FALSE(watch.doubts());
}

TEST(DivergenceWatch, LearnsFromRoundsAndDoesNotJudgeThem) {
  DivergenceWatch watch(options());
  add(watch, 20, 0.6, false);
  add(watch, 20, 50, false);
  watch.add(std::numeric_limits<double>::quiet_NaN(), 2, 1, false);
  EXPECT_FALSE(watch.doubts());
  EXPECT_FALSE(watch.has_diverged());
}

/// A loss that falls from that of a network that knows nothing, with noise of each step's mean.
/// Prints what it found, for the documentation.
TEST(DivergenceWatch, HasNoFalseAlarmInRunsWithLittleNoise) {
  for (const double noise : {0.1, 0.2, 0.3}) {
    int doubts = 0;
    int alarms = 0;
    constexpr int kRuns = 200;
    constexpr int kMeans = 1000;
    for (int run = 0; run < kRuns; ++run) {
      RandomStream random(CounterRandom(static_cast<std::uint64_t>(run)).split("loss"));
      DivergenceWatch watch(options());
      for (int i = 0; i < kMeans && !watch.has_diverged(); ++i) {
        const double usual = 0.1 + (kUniform - 0.1) * std::exp(-i / 150.0);
        double bell = 0;
        for (int k = 0; k < 12; ++k) {
          bell += random.unit() - 0.5;
        }
        add(watch, 1, usual * std::max(0.0, 1 + noise * bell));
        doubts += watch.doubts() ? 1 : 0;
      }
      alarms += watch.has_diverged() ? 1 : 0;
    }
    std::printf("noise %.0f %%: %d false alarms in %d runs of %d means, %d of them in doubt\n",
                100 * noise, alarms, kRuns, kMeans, doubts);
    EXPECT_LE(alarms, noise < 0.25 ? 0 : 2) << noise;
  }
}

/// How many means it takes to find a loss that grows by a tenth with each.
TEST(DivergenceWatch, FindsALossThatGrows) {
  for (const double from : {0.3, 1.0, 2.3}) {
    DivergenceWatch watch(options());
    add(watch, 30, from);
    int means = 0;
    for (double loss = from; !watch.has_diverged() && means < 200; loss *= 1.1) {
      add(watch, 1, loss);
      ++means;
    }
    std::printf("a loss of %.1f that grows: found after %d means\n", from, means);
    EXPECT_TRUE(watch.has_diverged());
    EXPECT_LE(means, 30);
  }
}

}  // namespace
}  // namespace mayfly::parameter_server
