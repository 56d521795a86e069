#include "cloud_hooks/core/demand.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/cloud_hooks/policy_harness.hpp"
#include "tests/unit/cloud_hooks/policy_parts.hpp"

namespace mayfly::cloud_hooks {
namespace {

using test_support::offer;
using test_support::PolicyParts;
using test_support::two_zones;

TEST(Demand, CountsWhatIsThereAndWhatIsComing) {
  PolicyParts parts(two_zones());
  EXPECT_EQ(parts.demand.workers_missing(), 2u);
  parts.run("s1", 0, 1);
  EXPECT_EQ(parts.demand.workers_missing(), 1u);
  parts.request(0, 4);
  EXPECT_EQ(parts.demand.workers_missing(), 0u);
  EXPECT_EQ(parts.demand.staying(), 1u);
  EXPECT_EQ(parts.demand.staying_or_coming(), 5u);
  EXPECT_EQ(parts.demand.present(0), 5u);
}

TEST(Demand, TheTargetStaysWithinOneAndMax) {
  PolicyParts parts(two_zones());
  parts.demand.set_target(0);
  EXPECT_EQ(parts.demand.target(), 1u);
  parts.demand.set_target(99);
  EXPECT_EQ(parts.demand.target(), 8u);
}

TEST(Demand, EvaluatorsAreCountedApart) {
  ReplacementOptions options = two_zones();
  options.evaluators = 2;
  options.offers[1].for_evaluator = true;
  PolicyParts parts(options);
  parts.run("s1", 1);
  parts.request(1, 1);
  EXPECT_EQ(parts.demand.evaluators_missing(), 0u);
  EXPECT_EQ(parts.demand.workers_missing(), 2u);
}

TEST(Demand, AnOfferHasRoomWithinItsLimit) {
  ReplacementOptions options = two_zones();
  options.offers[0].workers_most = 2;
  PolicyParts parts(options);
  parts.run("s1", 0);
  EXPECT_EQ(parts.demand.room(0), 1u);
  parts.request(0, 3);
  EXPECT_EQ(parts.demand.room(0), 0u);
  EXPECT_EQ(parts.demand.room(1), std::numeric_limits<std::uint32_t>::max());
}

TEST(Demand, AComposedJobLacksWhatItWantsOfEachOffer) {
  ReplacementOptions options = two_zones();
  options.target = 4;
  options.offers[0].wanted = 1;
  options.offers[1].wanted = 3;
  PolicyParts parts(options);
  parts.run("s1", 0);
  parts.run("s2", 0);
  parts.request(1, 1);
  EXPECT_EQ(parts.demand.composed(), (std::vector<std::uint32_t>{1, 3}));
  EXPECT_EQ(parts.demand.lacking(), (std::vector<std::uint32_t>{0, 2}));
}

TEST(Demand, TheFloorOnDemandIsWithinTheTarget) {
  ReplacementOptions options = two_zones();
  options.on_demand_floor = 3;
  options.offers.push_back({offer("c", Market::kOnDemand), 5.0, 1.0});
  PolicyParts parts(options);
  EXPECT_EQ(parts.demand.on_demand_floor(), 2u);
  parts.run("s1", 2);
  parts.run("s2", 1);
  EXPECT_EQ(parts.demand.on_demand_present(), 1u);
}

}  // namespace
}  // namespace mayfly::cloud_hooks
