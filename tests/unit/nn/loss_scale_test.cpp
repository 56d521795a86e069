#include "nn/dtype.hpp"

#include <gtest/gtest.h>

namespace mayfly::nn {
namespace {

/// The loss scale after so many steps with finite gradients.
LossScale after_clean(LossScale scale, int steps) {
  for (int i = 0; i < steps; ++i) {
    scale = scale.after_step(false).value();
  }
  return scale;
}

TEST(LossScale, BeginsAt65536AndIsAPowerOfTwo) {
  EXPECT_EQ(LossScale{}.factor(), 65536.0F);
  EXPECT_EQ((LossScale{0, 0}.factor()), 1.0F);
  EXPECT_EQ((LossScale{LossScale::kMost, 0}.factor()), 0x1p24F);
}

TEST(LossScale, GrowsOnceAfterTwoThousandStepsWithoutOverflow) {
  EXPECT_EQ(after_clean({}, 1999), (LossScale{16, 1999}));
  EXPECT_EQ(after_clean({}, 2000), (LossScale{17, 0}));
  EXPECT_EQ(after_clean({}, 6001), (LossScale{19, 1}));
}

TEST(LossScale, FallsWithEachOverflowAndCountsAnew) {
  const LossScale fallen = after_clean({}, 1999).after_step(true).value();
  EXPECT_EQ(fallen, (LossScale{15, 0}));
  EXPECT_EQ(fallen.after_step(true).value(), (LossScale{14, 0}));
  EXPECT_EQ(after_clean(fallen, 1999), (LossScale{15, 1999}));
}

TEST(LossScale, NeverLeavesItsLimits) {
  EXPECT_EQ(after_clean({}, 2000 * 20), (LossScale{LossScale::kMost, 0}));
  LossScale scale{LossScale::kMost, 7};
  for (int falls = 0; falls < LossScale::kMost; ++falls) {
    EXPECT_TRUE(scale.is_valid());
    scale = scale.after_step(true).value();
  }
  EXPECT_EQ(scale, (LossScale{0, 0}));
}

TEST(LossScale, AnOverflowWithoutAScaleIsDivergence) {
  EXPECT_FALSE((LossScale{0, 5}.after_step(true).has_value()));
  EXPECT_EQ((LossScale{0, 5}.after_step(false).value()), (LossScale{0, 6}));
}

TEST(LossScale, KnowsWhatNoJobCanHave) {
  for (const LossScale& wrong :
       {LossScale{-1, 0}, LossScale{25, 0}, LossScale{3, -1}, LossScale{3, 2000}}) {
    EXPECT_FALSE(wrong.is_valid());
  }
}

}  // namespace
}  // namespace mayfly::nn
