#include "observe/core/servers.hpp"

#include <gtest/gtest.h>

namespace mayfly::observe {
namespace {

TEST(Servers, KnowPricesOfOffersWithoutAMarketOrAType) {
  Servers servers;
  servers.prices("p3@zone-a=1.0*2#3, p3:on_demand=4.0, @zone-c=0.5");
  servers.granted(1, "s1", "p3 in zone-a (spot)");
  servers.granted(2, "s2", "a server in zone-c (spot)");
  const std::vector<ServerLane>& lanes = servers.lanes();
  ASSERT_EQ(lanes.size(), 2U);
  EXPECT_EQ(lanes[0].price, 1.0);
  EXPECT_EQ(lanes[0].on_demand_price, 4.0);
  EXPECT_EQ(lanes[1].price, 0.5);
  EXPECT_FALSE(lanes[1].on_demand_price);
}

TEST(Servers, AHostThatIsGrantedAgainAfterItsEndHasASecondLane) {
  Servers servers;
  servers.requested(0, "1 x a server");
  servers.granted(1, "h", "a server");
  servers.joined(2, "h");
  servers.granted(3, "h", "a server");  // recorded again by the next coordinator
  servers.ended(4, "h", "lost", "", std::nullopt);
  servers.ended(5, "h", "ended", "", 1.0);
  servers.requested(6, "1 x a server");
  servers.granted(7, "h", "a server");
  servers.joined(8, "h");
  const std::vector<ServerLane>& lanes = servers.lanes();
  ASSERT_EQ(lanes.size(), 2U);
  EXPECT_EQ(lanes[0].cost, 1.0);
  EXPECT_EQ(lanes[0].joined, 2.0);
  EXPECT_EQ(lanes[1].asked, 6);
  EXPECT_EQ(lanes[1].joined, 8.0);
  EXPECT_FALSE(lanes[1].ended);
}

}  // namespace
}  // namespace mayfly::observe
