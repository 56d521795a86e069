#include "cloud_hooks/core/provisioner.hpp"

#include <gtest/gtest.h>

#include "tests/unit/cloud_hooks/policy_harness.hpp"
#include "tests/unit/cloud_hooks/policy_parts.hpp"

namespace mayfly::cloud_hooks {
namespace {

using test_support::offer;
using test_support::PolicyParts;
using test_support::two_zones;

/// The zones and sizes of the requests, in their order, for example "a 2, b 1".
std::string requested(PolicyParts& parts) {
  std::string text;
  for (const auto& request : parts.taken<policy_effect::Request>()) {
    text += (text.empty() ? "" : ", ") + request.request.offer.zone + " " +
            std::to_string(request.request.count);
  }
  return text;
}

TEST(Provisioner, RequestsWhatIsMissingOfTheBestOffer) {
  PolicyParts parts(two_zones());
  parts.provisioner.request_missing(parts.now, false);
  EXPECT_EQ(requested(parts), "") << "earlier processes may have left servers";
  parts.provisioner.request_missing(parts.now, true);
  EXPECT_EQ(requested(parts), "a 2");
  parts.provisioner.request_missing(parts.now, true);
  EXPECT_EQ(requested(parts), "") << "they are coming";
}

TEST(Provisioner, SplitsBySizeAndLimitsOfRequests) {
  ReplacementOptions options = two_zones();
  options.target = 7;
  options.provider.count_max = 2;
  options.offers[0].workers_most = 3;
  options.requests_at_once = 3;
  PolicyParts parts(options);
  parts.provisioner.request_missing(parts.now, true);
  EXPECT_EQ(requested(parts), "a 2, a 1, b 2");
}

TEST(Provisioner, FillsTheFloorOnDemandFirst) {
  ReplacementOptions options = two_zones();
  options.on_demand_floor = 1;
  options.offers.push_back({offer("c", Market::kOnDemand), 5.0, 1.0});
  PolicyParts parts(options);
  parts.provisioner.request_missing(parts.now, true);
  EXPECT_EQ(requested(parts), "c 1, a 1");
}

TEST(Provisioner, TellsOnceWhyServersStayMissing) {
  ReplacementOptions options = two_zones();
  options.budget_per_hour = 0.5;
  PolicyParts parts(options);
  parts.provisioner.request_missing(parts.now, true);
  EXPECT_EQ(parts.told(), std::vector<std::string>{"budget"});
  parts.provisioner.request_missing(parts.now, true);
  EXPECT_TRUE(parts.told().empty());
  (void)parts.catalog.out_of_stock(0, parts.now, {});
  (void)parts.catalog.out_of_stock(1, parts.now, {});
  parts.shortage.changed();
  parts.provisioner.request_missing(parts.now, true);
  EXPECT_EQ(parts.told(), std::vector<std::string>{"offers_exhausted"});
  EXPECT_EQ(parts.provisioner.next_wake(parts.now), parts.catalog.next_change(parts.now));
}

TEST(Provisioner, AnOfferWithABurstOfLossesIsUsedLast) {
  PolicyParts parts(two_zones());
  for (std::uint64_t member = 1; member <= 2; ++member) {
    const std::string id = "s" + std::to_string(member);
    parts.run(id, 0, member);
    parts.shortage.noticed(parts.now);
    parts.shortage.lost_worker_of(*parts.fleet.gone(parts.now, MemberId{member}, false)->offer);
  }
  parts.provisioner.request_missing(parts.now, true);
  EXPECT_EQ(requested(parts), "") << "there may be more losses";
  EXPECT_EQ(parts.provisioner.next_wake(parts.now), parts.now + parts.options.gather);
  parts.now = parts.now + parts.options.gather;
  parts.provisioner.request_missing(parts.now, true);
  EXPECT_EQ(requested(parts), "b 2");
}

}  // namespace
}  // namespace mayfly::cloud_hooks
