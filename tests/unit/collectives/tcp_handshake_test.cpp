#include "collectives/tcp/tcp_handshake.hpp"

#include <gtest/gtest.h>

namespace mayfly::collectives {
namespace {

constexpr Hello kExpected{kHelloMagic, 7, 99, 2, 0};

TEST(Judge, WelcomesTheExpectedNeighbour) {
  EXPECT_EQ(judge(kExpected, kExpected), Verdict::kWelcome);
}

TEST(Judge, LetsNewerViewsWaitWhateverTheirKey) {
  EXPECT_EQ(judge({kHelloMagic, 8, 1, 2, 0}, kExpected), std::nullopt);
}

TEST(Judge, RefusesStaleViewsWrongKeysAndWrongRanks) {
  EXPECT_EQ(judge({kHelloMagic, 6, 99, 2, 0}, kExpected), Verdict::kStaleView);
  EXPECT_EQ(judge({kHelloMagic, 7, 98, 2, 0}, kExpected), Verdict::kWrongKey);
  EXPECT_EQ(judge({kHelloMagic, 7, 99, 1, 0}, kExpected), Verdict::kWrongRank);
  EXPECT_EQ(judge({kHelloMagic, 7, 99, 2, 1}, kExpected), Verdict::kWrongRank);
}

}  // namespace
}  // namespace mayfly::collectives
