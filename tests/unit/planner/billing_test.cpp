#include "planner/billing.hpp"

#include <gtest/gtest.h>

#include "tests/unit/planner/invented.hpp"

namespace mayfly::planner {
namespace {

TEST(Billing, TheStudiesBillALostServerForItsUptimeAndOthersForTheJob) {
  const std::vector<BilledServer> servers = {{0.01, 0, 50}, {0.01, 0, 50, 250}, {0.02, 0, 0}};
  EXPECT_DOUBLE_EQ(cost_of(servers, 1000, 1100, BillingRule::kStudies), 9.5 + 2 + 20);
}

TEST(Billing, TheProductBillsFromTheRequestUntilGoneForALeastTime) {
  const std::vector<BilledServer> servers = {{0.01, 0, 50}, {0.01, 1000, 1050, 1010}};
  EXPECT_DOUBLE_EQ(cost_of(servers, 1000, 1100, BillingRule::kProduct), 11 + 0.6);
}

TEST(Billing, PricesAreFoundByTypeAndMarket) {
  const Prices prices(invented_calibration());
  EXPECT_EQ(prices.server("A1", "on_demand").value(), 0.0003);
  EXPECT_EQ(prices.parameter_server().value(), 0.00005);
  EXPECT_EQ(prices.server("B2", "on_demand").error().detail,
            "prices.csv has no price of a 1xB2 server on the market on_demand; it has one for "
            "spot");
}

}  // namespace
}  // namespace mayfly::planner
