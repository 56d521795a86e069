// The servers that may be given up, and their order without speeds. least_missed_test.cpp tests
// their order by speeds.

#include "cloud_hooks/core/server_choice.hpp"

#include <gtest/gtest.h>

#include "tests/unit/cloud_hooks/policy_harness.hpp"
#include "tests/unit/cloud_hooks/policy_parts.hpp"

namespace mayfly::cloud_hooks {
namespace {

using test_support::offer;
using test_support::PolicyParts;
using test_support::two_zones;
using Ids = std::vector<std::string>;

ServerChoice choice_of(const PolicyParts& parts) {
  return {parts.options, parts.catalog, parts.bill, parts.demand, parts.fleet};
}

TEST(ServerChoice, ServersWithoutAWorkerGoFirstThenTheDearestThenTheNewest) {
  PolicyParts parts(two_zones());
  parts.run("cheap", 0, 1);
  parts.run("cheap and newer", 0, 2);
  parts.run("dear", 1, 3);
  parts.run("waits", 0);
  EXPECT_EQ(choice_of(parts).least_wanted(parts.now, 9),
            (Ids{"waits", "dear", "cheap and newer", "cheap"}));
  EXPECT_EQ(choice_of(parts).least_wanted(parts.now, 2), (Ids{"waits", "dear"}));
}

TEST(ServerChoice, SomeServersAreNeverGivenUp) {
  ReplacementOptions options = two_zones();
  options.offers.push_back({offer("e"), 9.0, 1.0, true});
  PolicyParts parts(options);
  parts.run("irreplaceable", 1, 1);
  parts.run("gives way", 1, 2);
  parts.run("leaves", 1, 3);
  parts.run("of an evaluator", 2);
  parts.run("other", 0, 4);
  parts.fleet.irreplaceable(MemberId{1});
  parts.fleet.set_gives_way("gives way", true);
  EXPECT_TRUE(parts.fleet.leaving(parts.now, MemberId{3}));
  EXPECT_EQ(choice_of(parts).least_wanted(parts.now, 9), Ids{"other"});
}

TEST(ServerChoice, ServersOnDemandAreKeptDownToTheirFloor) {
  ReplacementOptions options = two_zones();
  options.on_demand_floor = 1;
  options.offers.push_back({offer("c", Market::kOnDemand), 5.0, 1.0});
  PolicyParts parts(options);
  parts.run("s1", 2, 1);
  parts.run("s2", 2, 2);
  parts.run("s3", 0, 3);
  EXPECT_EQ(choice_of(parts).least_wanted(parts.now, 9), (Ids{"s2", "s3"}));
}

TEST(ServerChoice, AComposedJobGivesUpWhatItHasTooManyOf) {
  ReplacementOptions options = two_zones();
  options.offers[1].wanted = 2;
  PolicyParts parts(options);
  parts.run("wanted", 1, 1);
  parts.run("not wanted", 0, 2);
  EXPECT_EQ(choice_of(parts).least_wanted(parts.now, 1), Ids{"not wanted"});
}

TEST(ServerChoice, IsDescribedByItsShareOfSpeedAndPrice) {
  PolicyParts parts(two_zones());
  parts.run("s1", 0, 1);
  parts.run("s2", 1, 2);
  EXPECT_EQ(choice_of(parts).describe(parts.now, {"s2"}),
            "s2 (gpu in b (spot)) with 50 % of the speed and 67 % of the price of 2 servers");
}

}  // namespace
}  // namespace mayfly::cloud_hooks
