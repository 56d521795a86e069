#include "collectives/parameter_server/core/divergence_watch.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

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

/// Adds so many means of this loss.
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
  add(wild, 5, 13.7);
  EXPECT_TRUE(wild.doubts());
  EXPECT_FALSE(wild.has_diverged()) << "there is little to compare with";
  add(wild, 1, 13.7);
  EXPECT_TRUE(wild.has_diverged());
}

TEST(DivergenceWatch, TakesALossThatWasAsHighBeforeForNoise) {
  DivergenceWatch watch(options());
  for (int i = 0; i < 8; ++i) {
    add(watch, 1, i % 4 == 0 ? 4.5 : 1);  // the first four are compared with 4.6
  }
  add(watch, 3, 4.4);
  EXPECT_FALSE(watch.doubts()) << "more than twice the median, but it was as high before";
  add(watch, 1, 6);
  EXPECT_TRUE(watch.doubts());
}

TEST(DivergenceWatch, WithFewMeansToCompareWithTakesMoreHighOnes) {
  for (const auto& [before, needed] : {std::pair{4, 6}, {8, 5}, {12, 4}, {16, 3}, {40, 3}}) {
    DivergenceWatch watch(options());
    add(watch, before, 1);
    add(watch, needed - 1, 5);
    EXPECT_FALSE(watch.has_diverged()) << before;
    add(watch, 1, 5);
    EXPECT_TRUE(watch.has_diverged()) << before;
  }
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

TEST(DivergenceWatch, ARoundEndsTheDoubtOfWhatWasBefore) {
  DivergenceWatch watch(options());
  add(watch, 20, 1);
  add(watch, 2, 5);
  ASSERT_TRUE(watch.doubts());
  add(watch, 1, 1, false);
  EXPECT_FALSE(watch.doubts());
  add(watch, 2, 5.5);
  EXPECT_FALSE(watch.has_diverged()) << "two in a row, not four";
  add(watch, 1, 5.5);
  EXPECT_TRUE(watch.has_diverged());
  add(watch, 20, 1);
  EXPECT_TRUE(watch.has_diverged()) << "for good";
}

TEST(DivergenceWatch, AMeanIsOfWholeWindowsAndOfTheirMicrobatches) {
  DivergenceWatch watch(options());
  add(watch, 20, 1);
  watch.add(40, 2, 3, true);  // three slices of a window of four
  EXPECT_FALSE(watch.doubts());
  watch.add(20, 2, 1, true);
  EXPECT_TRUE(watch.doubts()) << "15 for each microbatch";
  DivergenceWatch calm(options());
  add(calm, 20, 1);
  calm.add(40, 40, 4, true);  // a loss of 1 for each microbatch
  EXPECT_FALSE(calm.doubts());
}

}  // namespace
}  // namespace mayfly::parameter_server
