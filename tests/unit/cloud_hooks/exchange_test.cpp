// back_to_spot_test.cpp and composition_test.cpp test more of these rules, through the whole
// policy.

#include "cloud_hooks/core/exchange.hpp"

#include <gtest/gtest.h>

#include "tests/unit/cloud_hooks/policy_harness.hpp"
#include "tests/unit/cloud_hooks/policy_parts.hpp"

namespace mayfly::cloud_hooks {
namespace {

using test_support::error_of;
using test_support::offer;
using test_support::PolicyParts;

ReplacementOptions spot_and_on_demand() {
  ReplacementOptions options;
  options.target = 1;
  options.max = 2;
  options.offers = {{offer("a"), 1.0, 1.0}, {offer("b", Market::kOnDemand), 3.0, 1.0}};
  return options;
}

/// Begins the exchange of a running on-demand server. Returns the id of the successor's request.
std::string begin_exchange(PolicyParts& parts) {
  parts.run("old", 1, 1);
  EXPECT_EQ(parts.exchange.next_wake(parts.now), parts.now + parts.options.back_to_spot_after);
  parts.exchange.begin(parts.now);
  EXPECT_FALSE(parts.exchange.is_under_way()) << "not yet";
  parts.now = parts.now + parts.options.back_to_spot_after;
  parts.exchange.begin(parts.now);
  EXPECT_TRUE(parts.exchange.is_under_way());
  return parts.taken<policy_effect::Request>().at(0).request.request_id;
}

TEST(Exchange, TheOldServerLeavesWhenItsSuccessorComputes) {
  PolicyParts parts(spot_and_on_demand());
  const std::string request = begin_exchange(parts);
  EXPECT_EQ(parts.demand.staying_or_coming(), 1u) << "the old one does not count";
  Fleet::Arrival arrival;
  arrival.request_id = request;
  arrival.offer = 0;
  parts.fleet.add(parts.now, "new", arrival);
  parts.requests.granted(parts.now, request);
  parts.fleet.joined(parts.now, MemberId{2}, "new");
  parts.exchange.watch(parts.now, true);
  EXPECT_TRUE(parts.taken<policy_effect::Drain>().empty()) << "it computes nothing yet";
  EXPECT_EQ(parts.exchange.next_wake(parts.now), parts.now + parts.options.join_timeout);
  parts.fleet.measured(MemberId{2}, 1.0);
  parts.exchange.watch(parts.now, true);
  EXPECT_EQ(parts.taken<policy_effect::Drain>().at(0).member, MemberId{1});
  EXPECT_FALSE(parts.exchange.is_under_way());
  EXPECT_EQ(parts.fleet.staying(), 1u);
}

TEST(Exchange, ARefusalDoublesTheTimeUntilTheNextAttempt) {
  PolicyParts parts(spot_and_on_demand());
  const std::string request = begin_exchange(parts);
  parts.requests.refused(parts.now, request, error_of(ProviderErrorKind::kCapacity), false);
  parts.exchange.watch(parts.now, true);
  EXPECT_FALSE(parts.exchange.is_under_way());
  EXPECT_EQ(parts.fleet.staying(), 1u) << "the old one stays";
  EXPECT_EQ(parts.exchange.next_wake(parts.now), parts.now + 2 * parts.options.back_to_spot_after);
}

TEST(Exchange, IsForgottenIfTheOldServerIsGoneOrNothingMayBeRequested) {
  PolicyParts gone(spot_and_on_demand());
  begin_exchange(gone);
  gone.fleet.remove("old");
  gone.exchange.watch(gone.now, true);
  EXPECT_FALSE(gone.exchange.is_under_way());
  PolicyParts stopped(spot_and_on_demand());
  begin_exchange(stopped);
  stopped.exchange.watch(stopped.now, false);
  EXPECT_FALSE(stopped.exchange.is_under_way());
  EXPECT_EQ(stopped.fleet.staying(), 1u);
}

TEST(Exchange, IsNotWorthASmallDifferenceInPrice) {
  ReplacementOptions options = spot_and_on_demand();
  options.offers[0].price_per_hour = 0.81 * 3.0;
  PolicyParts parts(options);
  parts.run("old", 1, 1);
  EXPECT_FALSE(parts.exchange.next_wake(parts.now));
}

TEST(Exchange, KeepsTheFloorOnDemand) {
  ReplacementOptions options = spot_and_on_demand();
  options.on_demand_floor = 1;
  PolicyParts parts(options);
  parts.run("old", 1, 1);
  EXPECT_FALSE(parts.exchange.next_wake(parts.now));
}

}  // namespace
}  // namespace mayfly::cloud_hooks
