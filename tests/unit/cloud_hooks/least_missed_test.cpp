// The choice of the servers to give up: least_missed() alone, and in a policy that has to have
// fewer servers.

#include "cloud_hooks/core/least_missed.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "base/random.hpp"
#include "tests/unit/cloud_hooks/policy_harness.hpp"

namespace mayfly::cloud_hooks {
namespace {

using test_support::offer;
using test_support::PolicyHarness;
using test_support::two_zones;
using Places = std::vector<std::size_t>;

constexpr double kRounding = 1e-5;

ServerWorth worth(double speed, double price, std::uint32_t order) {
  return {.speed = speed, .price_per_hour = price, .order = order};
}

double price_of(const std::vector<ServerWorth>& servers) {
  return std::accumulate(
      servers.begin(), servers.end(), 0.0,
      [](double sum, const ServerWorth& one) { return sum + one.price_per_hour; });
}

std::vector<ServerWorth> without(const std::vector<ServerWorth>& servers, const Places& places) {
  std::vector<ServerWorth> kept;
  for (std::size_t place = 0; place < servers.size(); ++place) {
    if (std::ranges::find(places, place) == places.end()) {
      kept.push_back(servers[place]);
    }
  }
  return kept;
}

TEST(SpeedTogether, IsThatOfWholeMicrobatches) {
  EXPECT_NEAR(speed_together({worth(1, 0, 0), worth(1, 0, 1), worth(2, 0, 2)}, 4), 4, kRounding);
  EXPECT_NEAR(speed_together({worth(1, 0, 0), worth(1, 0, 1), worth(1, 0, 2)}, 4), 2, kRounding)
      << "one of them computes two";
  EXPECT_NEAR(speed_together({worth(1, 0, 0), worth(1, 0, 1), worth(1, 0, 2)}, 0), 3, kRounding);
  EXPECT_NEAR(speed_together({{.speed = 3, .up_share = 0.5}, worth(1, 0, 1)}, 0), 2.5, kRounding);
}

TEST(LeastMissed, IsWhatCostsMostForItsSpeed) {
  const std::vector<ServerWorth> servers = {worth(1, 1, 0), worth(4, 2, 1), worth(5, 3, 2)};
  EXPECT_EQ(least_missed(servers, {.count = 1}), Places{0});
  EXPECT_EQ(least_missed(servers, {.count = 2}), (Places{2, 0}));
  EXPECT_EQ(least_missed(servers, {.count = 9}), (Places{2, 1, 0})) << "all that there are";
  EXPECT_TRUE(least_missed({}, {.count = 1}).empty());
}

TEST(LeastMissed, WithoutPricesIsTheSlowestAndOfEqualOnesTheNewest) {
  EXPECT_EQ(least_missed({worth(2, 0, 5), worth(1, 0, 3), worth(3, 0, 4)}, {.count = 1}),
            Places{1});
  EXPECT_EQ(least_missed({worth(1, 1, 0), worth(1, 1, 2), worth(1, 1, 1)}, {.count = 2}),
            (Places{1, 2}));
}

TEST(LeastMissed, IsWhatIsLostSoonest) {
  std::vector<ServerWorth> servers = {worth(1, 1, 0), worth(1, 1, 1)};
  servers[0].up_share = 0.99;
  EXPECT_EQ(least_missed(servers, {.count = 1}), Places{0});
}

TEST(LeastMissed, LeavesWhatMayNotGoAndTheFloorOnDemand) {
  std::vector<ServerWorth> servers = {worth(1, 9, 0), worth(1, 8, 1), worth(1, 7, 2),
                                      worth(1, 1, 3)};
  servers[0].may_go = false;
  servers[1].is_on_demand = servers[2].is_on_demand = true;
  EXPECT_EQ(least_missed(servers, {.count = 2, .on_demand_most = 1}), (Places{3, 1}));
  EXPECT_EQ(least_missed(servers, {.count = 3, .on_demand_most = 0}), Places{3});
}

TEST(LeastMissed, WholeMicrobatchesDecide) {
  // Without the server of speed 1.9 a step takes no longer: the server of speed 5 then computes
  // five of the eight microbatches, and each other server computes one.
  const std::vector<ServerWorth> servers = {worth(5, 5, 0), worth(1, 1, 1), worth(1, 1, 2),
                                            worth(1, 1, 3), worth(1.9, 1.8, 4)};
  EXPECT_NE(least_missed(servers, {.count = 1}), Places{4});
  EXPECT_EQ(least_missed(servers, {.count = 1, .microbatches = 8}), Places{4});
}

TEST(LeastMissed, NeverGivesUpMoreSpeedThanAnotherChoiceAtTheSamePrice) {
  RandomStream random{CounterRandom(7)};
  for (int round = 0; round < 300; ++round) {
    std::vector<ServerWorth> servers;
    const auto count = static_cast<std::uint32_t>(2 + random.below(6));
    for (std::uint32_t i = 0; i < count; ++i) {
      ServerWorth one = worth(0.5 + random.unit(), static_cast<double>(random.below(3)), i);
      one.up_share = 0.8 + 0.2 * random.unit();
      servers.push_back(one);
    }
    const GiveUp wanted{.count = 1 + random.below(count - 1),
                        .microbatches = static_cast<std::uint32_t>(random.below(3) * 8)};
    const Places chosen = least_missed(servers, wanted);
    ASSERT_EQ(chosen.size(), wanted.count);
    EXPECT_EQ(chosen, least_missed(servers, wanted)) << "the same answer to the same question";
    const std::vector<ServerWorth> kept = without(servers, chosen);
    for (std::uint32_t set = 0; set < (1U << count); ++set) {
      Places other;
      for (std::uint32_t i = 0; i < count; ++i) {
        if ((set >> i & 1) != 0) {
          other.push_back(i);
        }
      }
      const std::vector<ServerWorth> rest = without(servers, other);
      if (other.size() == wanted.count && std::abs(price_of(rest) - price_of(kept)) < kRounding) {
        EXPECT_LE(speed_together(rest, wanted.microbatches),
                  speed_together(kept, wanted.microbatches) * (1 + kRounding));
      }
    }
  }
}

TEST(LeastMissed, IsExactForManyServersOfDivisibleWork) {
  RandomStream random{CounterRandom(8)};
  for (int round = 0; round < 50; ++round) {
    std::vector<ServerWorth> servers;
    for (std::uint32_t i = 0; i < 40; ++i) {
      servers.push_back(worth(0.5 + random.unit(), 1.0 + static_cast<double>(i % 2), i));
    }
    constexpr std::size_t kCount = 15;
    const std::vector<ServerWorth> kept =
        without(servers, least_missed(servers, {.count = kCount}));
    // Other choices give up `of_cheap` of the cheap servers, and the rest of the dear ones; of each
    // kind, the slowest ones.
    std::vector<ServerWorth> cheap;
    std::vector<ServerWorth> dear;
    for (const ServerWorth& one : servers) {
      (one.price_per_hour == 1 ? cheap : dear).push_back(one);
    }
    std::ranges::sort(cheap, {}, &ServerWorth::speed);
    std::ranges::sort(dear, {}, &ServerWorth::speed);
    const double cost = price_of(kept) / speed_together(kept, 0);
    for (std::size_t of_cheap = 0; of_cheap <= kCount; ++of_cheap) {
      std::vector<ServerWorth> rest(cheap.begin() + static_cast<std::ptrdiff_t>(of_cheap),
                                    cheap.end());
      rest.insert(rest.end(), dear.begin() + static_cast<std::ptrdiff_t>(kCount - of_cheap),
                  dear.end());
      EXPECT_GE(price_of(rest) / speed_together(rest, 0), cost * (1 - kRounding));
    }
  }
}

TEST(GivingUp, GoesByTheSpeedOfEachWorkerOnceItIsMeasured) {
  ReplacementOptions options = two_zones();
  options.target = 3;
  PolicyHarness policy(options);
  policy.settle();
  policy.feed(policy_event::Measured{MemberId{1}, 10});
  policy.feed(policy_event::Measured{MemberId{2}, 6});
  policy.feed(policy_event::Measured{MemberId{3}, 9});
  policy.feed(policy_event::Scaled{2});
  EXPECT_EQ(policy.drains, std::vector<MemberId>{MemberId{2}}) << "not the newest";
  EXPECT_EQ(policy.text_of("servers_chosen"),
            "s2 (gpu in a (spot)) with 24 % of the speed and 33 % of the price of 3 servers: more "
            "servers than needed");
}

TEST(GivingUp, GoesByAgeWhereLifetimesAreKnown) {
  ReplacementOptions options = two_zones();
  options.up_share = [](const Offer&, Duration age) { return age > seconds(60) ? 1 : 0.9; };
  options.provider.count_max = 1;
  PolicyHarness policy(options);
  const std::vector<policy_effect::Request> wanted = policy.requests;
  policy.grant(wanted[0]);
  policy.now = policy.now + seconds(100);
  policy.grant(wanted[1]);
  for (const std::uint64_t i : {1, 2}) {
    policy.feed(policy_event::Joined{MemberId{i}, "s" + std::to_string(i)});
  }
  policy.feed(policy_event::Measured{MemberId{1}, 9.5});
  policy.feed(policy_event::Measured{MemberId{2}, 10});
  policy.feed(policy_event::Scaled{1});
  EXPECT_EQ(policy.drains, std::vector<MemberId>{MemberId{2}}) << "9 are expected of it";
}

TEST(Composition, IsSettledWhenEveryServerThatIsWantedWorks) {
  ReplacementOptions options = two_zones();
  options.budget_per_hour = 3.5;
  PolicyHarness policy(options);
  EXPECT_FALSE(policy.composition().is_settled);
  EXPECT_TRUE(policy.composition().working.empty());
  policy.settle();
  policy.now = policy.now + seconds(50);
  policy.feed(policy_event::Measured{MemberId{1}, 10});
  const Composition present = policy.composition();
  EXPECT_TRUE(present.is_settled);
  ASSERT_EQ(present.working.size(), 2u);
  EXPECT_EQ(present.working[1].offer, offer("a"));
  EXPECT_EQ(present.working[1].price_per_hour, 1);
  EXPECT_EQ(present.working[1].speed, 10) << "the speed of its type";
  EXPECT_EQ(present.working[1].age, seconds(50));
  ASSERT_TRUE(present.next.has_value());
  EXPECT_EQ(present.next->offer, offer("a"));
  EXPECT_TRUE(present.next->is_measured);
  policy.feed(policy_event::Scaled{3});
  EXPECT_FALSE(policy.composition().is_settled);
  policy.settle();
  EXPECT_TRUE(policy.composition().is_settled);
  EXPECT_FALSE(policy.composition().next.has_value()) << "the budget does not allow a fourth";
}

TEST(Composition, AnOfferHasThePriceThatWasReportedLastAsANewOne) {
  PolicyHarness policy(two_zones());
  policy.settle();
  const auto price_after = [&policy](double of_first, double of_second) {
    std::vector<ServerStatus> listed = {PolicyHarness::server("s1", {}),
                                        PolicyHarness::server("s2", {})};
    listed[0].price_per_hour = of_first;
    listed[1].price_per_hour = of_second;
    policy.feed(policy_event::Listed{listed});
    return policy.composition().next->price_per_hour;
  };
  EXPECT_EQ(price_after(1.5, 1), 1.5) << "the second has the price of the offer";
  EXPECT_EQ(price_after(1.5, 1), 1.5) << "it keeps the price that it was granted at";
  EXPECT_EQ(price_after(1.5, 1.2), 1.2);
}

TEST(GivingUp, KeepsTheHourlyBudgetWhenPricesRise) {
  ReplacementOptions options = two_zones();
  options.target = 3;
  options.budget_per_hour = 3.5;
  PolicyHarness policy(options);
  policy.settle();
  policy.feed(policy_event::Measured{MemberId{1}, 5});
  policy.feed(policy_event::Measured{MemberId{2}, 4});
  policy.feed(policy_event::Measured{MemberId{3}, 5});
  std::vector<ServerStatus> now_listed;
  for (const char* id : {"s1", "s2", "s3"}) {
    now_listed.push_back(PolicyHarness::server(id, {}));
    now_listed.back().price_per_hour = 1.2;
  }
  policy.feed(policy_event::Listed{now_listed});
  EXPECT_EQ(policy.drains, std::vector<MemberId>{MemberId{2}});
  EXPECT_TRUE(policy.was_told("servers_chosen"));
  EXPECT_TRUE(policy.requests.empty()) << "one more is not paid for at the new price";
  policy.wait(std::chrono::hours(1));
  EXPECT_TRUE(policy.requests.empty());
}

TEST(GivingUp, ProviderThatWantsSomeBackGetsThoseThatAreMissedLeastOnce) {
  ReplacementOptions options = two_zones();
  options.target = 3;
  PolicyHarness policy(options);
  policy.settle();
  for (const auto& [member, speed] : {std::pair(1, 5.0), std::pair(2, 4.0), std::pair(3, 5.0)}) {
    policy.feed(policy_event::Measured{MemberId{static_cast<std::uint64_t>(member)}, speed});
  }
  std::vector<ServerStatus> listed;
  for (const char* id : {"s1", "s2", "s3"}) {
    listed.push_back(PolicyHarness::server(id, {}));
  }
  policy.feed(policy_event::Listed{listed, 1});
  EXPECT_EQ(policy.drains, std::vector<MemberId>{MemberId{2}});
  EXPECT_NE(policy.text_of("servers_chosen").find("the provider wants 1 back"), std::string::npos);
  policy.wait(milliseconds(50));
  ASSERT_EQ(policy.requests.size(), 1u) << "it is replaced like a lost one";
  EXPECT_EQ(policy.requests[0].request.offer, offer("b")) << "not from where room is short";
  policy.feed(policy_event::Listed{listed, 1});
  EXPECT_TRUE(policy.drains.empty()) << "the one that leaves already counts";
  policy.feed(policy_event::Listed{listed, 2});
  EXPECT_EQ(policy.drains.size(), 1u);
  policy.feed(policy_event::Listed{listed, 100});
  EXPECT_EQ(policy.drains.size(), 1u) << "no more than there are";
}

TEST(GivingUp, OperatorGivesUpANumberEachTimeAndTheyAreReplaced) {
  ReplacementOptions options = two_zones();
  options.target = 3;
  PolicyHarness policy(options);
  policy.settle();
  policy.feed(policy_event::Measured{MemberId{1}, 4});
  policy.feed(policy_event::Measured{MemberId{2}, 5});
  policy.feed(policy_event::Measured{MemberId{3}, 6});
  policy.feed(policy_event::WantedBack{1});
  EXPECT_EQ(policy.drains, std::vector<MemberId>{MemberId{1}});
  EXPECT_NE(policy.text_of("servers_chosen").find("an operator gave up 1"), std::string::npos);
  policy.feed(policy_event::WantedBack{1});
  EXPECT_EQ(policy.drains, std::vector<MemberId>{MemberId{2}}) << "one more";
  policy.wait(milliseconds(50));
  ASSERT_EQ(policy.requests.size(), 1u);
  EXPECT_EQ(policy.requests[0].request.offer, offer("b"));
  EXPECT_EQ(policy.requests[0].request.count, 2u);
}

}  // namespace
}  // namespace mayfly::cloud_hooks
