#include "base/portable_math.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace mayfly {
namespace {

TEST(PortableMath, AgreesWithTheLibrary) {
  for (double x = -600; x <= 0; x += 0.37) {
    EXPECT_NEAR(portable_exp(x) / std::exp(x), 1.0, 1e-15) << x;
  }
  EXPECT_EQ(portable_exp(0.0), 1.0);
  EXPECT_EQ(portable_exp(-1e9), 0.0);
  EXPECT_TRUE(std::isnan(portable_exp(NAN)));
  for (double x = 1; x < 1e6; x *= 1.0137) {
    EXPECT_NEAR(portable_log(x), std::log(x), 1e-15 * (1 + std::log(x))) << x;
  }
  EXPECT_TRUE(std::isnan(portable_log(NAN)));
  EXPECT_EQ(portable_log(INFINITY), INFINITY);
}

}  // namespace
}  // namespace mayfly
