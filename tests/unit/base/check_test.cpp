#include "base/check.hpp"

#include <gtest/gtest.h>

namespace mayfly {
namespace {

TEST(CheckDeathTest, NamesPlaceReasonAndCondition) {
  const int sum = 3;
  EXPECT_DEATH(ENSURE(sum == 4, "sums must match"),
               "internal error at .*check_test.cpp:[0-9]+: sums must match \\(sum == 4\\)");
}

TEST(Check, EvaluatesItsConditionOnceAndGoesOn) {
  int evaluated = 0;
  ENSURE(++evaluated == 1, "the condition is evaluated once");
  EXPECT_EQ(evaluated, 1);
}

TEST(CheckDeathTest, UnreachableAborts) {
  EXPECT_DEATH(UNREACHABLE("every case returns"), "every case returns");
}

}  // namespace
}  // namespace mayfly
