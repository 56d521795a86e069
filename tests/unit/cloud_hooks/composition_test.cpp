// A composition is a number of servers for each offer. If a server is refused, a server of another
// offer takes its place until the wanted one is available.

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "tests/unit/cloud_hooks/policy_harness.hpp"

namespace mayfly::cloud_hooks {
namespace {

using test_support::error_of;
using test_support::offer;
using test_support::PolicyHarness;

/// Two servers of a, and one of b, which is dearer; c is the cheapest offer, but not wanted.
ReplacementOptions two_and_one() {
  ReplacementOptions options;
  options.target = 3;
  options.max = 12;
  options.offers = {{offer("a"), 2.0, 1.0}, {offer("b"), 3.0, 1.0}, {offer("c"), 1.0, 1.0}};
  options.offers[0].wanted = 2;
  options.offers[1].wanted = 1;
  options.provider.count_max = 1;
  options.back_to_spot_after = seconds(900);
  return options;
}

std::string zones_of(const std::vector<policy_effect::Request>& requests) {
  std::string zones;
  for (const policy_effect::Request& request : requests) {
    zones += request.request.offer.zone;
  }
  return zones;
}

TEST(Composition, RequestsWhatItWantsAndReplacesALostServerByOneOfItsOffer) {
  PolicyHarness policy(two_and_one());
  EXPECT_EQ(zones_of(policy.requests), "aab");
  policy.settle();
  policy.feed(policy_event::Gone{MemberId{3}});
  policy.wait(seconds(1));
  EXPECT_EQ(zones_of(policy.requests), "b");
}

TEST(Composition, TakesTheCheapestOtherOfferForARefusedOneAndGoesBackLater) {
  PolicyHarness policy(two_and_one());
  const std::vector<policy_effect::Request> wanted = policy.requests;
  policy.refuse(wanted.at(2), error_of(ProviderErrorKind::kCapacity));
  ASSERT_EQ(zones_of(policy.requests), "c");
  policy.grant(policy.requests[0]);  // s1
  policy.grant(wanted[0]);
  policy.grant(wanted[1]);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    policy.feed(policy_event::Joined{MemberId{i}, "s" + std::to_string(i)});
  }
  policy.wait(seconds(899));
  EXPECT_TRUE(policy.requests.empty()) << "three are there";
  policy.wait(seconds(1));
  ASSERT_EQ(zones_of(policy.requests), "b");
  EXPECT_TRUE(policy.was_told("back_to_composition"));
  policy.grant(policy.requests[0]);
  policy.feed(policy_event::Joined{MemberId{4}, "s4"});
  EXPECT_TRUE(policy.drains.empty()) << "it has computed nothing yet";
  policy.feed(policy_event::Measured{MemberId{4}, 1.0});
  EXPECT_EQ(policy.drains, std::vector<MemberId>{MemberId{1}});
  policy.feed(policy_event::Gone{MemberId{1}});
  EXPECT_EQ(policy.releases, std::vector<std::string>{"s1"});
  policy.wait(seconds(4 * 3600));
  EXPECT_TRUE(policy.requests.empty()) << "it is as wanted";
}

TEST(Composition, KeepsItsProportionsWhenTheNumberIsChanged) {
  PolicyHarness policy(two_and_one());
  policy.settle();
  policy.feed(policy_event::Scaled{6});
  EXPECT_EQ(zones_of(policy.requests), "aab");
  policy.settle();
  policy.feed(policy_event::Scaled{2});
  std::map<MemberId, int> gone;
  for (const MemberId member : policy.drains) {
    ++gone[member];
  }
  EXPECT_EQ(policy.drains.size(), 4u);
  EXPECT_EQ(gone[MemberId{3}] + gone[MemberId{6}], 1) << "one of the two of b, which are s3 and s6";
}

TEST(Composition, SaysAtATotalHowManyOfEach) {
  std::vector<OfferTerms> terms = two_and_one().offers;
  terms[0].workers_most = 7;
  const OfferCatalog catalog(terms, {});
  for (std::uint32_t servers = 0; servers < 40; ++servers) {
    const std::vector<std::uint32_t> counts = catalog.wanted_of(servers);
    EXPECT_EQ(counts[2], 0u);
    EXPECT_EQ(counts[0], std::min(7u, servers - counts[1])) << servers;
    EXPECT_NEAR(counts[1], servers / 3.0, 0.67) << servers;
  }
  EXPECT_EQ(catalog.wanted_of(3), (std::vector<std::uint32_t>{2, 1, 0}));
}

TEST(OfferLimit, BoundsEveryRequestAndSaysSo) {
  ReplacementOptions options = two_and_one();
  options.target = 8;
  for (OfferTerms& terms : options.offers) {
    terms.wanted = 0;
    terms.workers_most = 2;
  }
  PolicyHarness policy(options);
  EXPECT_EQ(zones_of(policy.requests), "ccaabb");
  EXPECT_NE(policy.text_of("offers_exhausted").find("as their limits allow"), std::string::npos);
  policy.settle();
  policy.feed(policy_event::Gone{MemberId{1}});
  EXPECT_EQ(zones_of(policy.requests), "c") << "that one is free again";
}

/// Requests that are refused at random and servers that are lost at random, then a calm.
class RandomOffers {
 public:
  explicit RandomOffers(std::uint64_t seed)
      : random_(CounterRandom(seed)), options_(options_of(random_)), policy_(options_) {}

  void run() {
    for (int round = 0; round < 60; ++round) {
      answer(0.4);
      if (random_.below(4) == 0 && !members_.empty()) {
        lose(random_.below(members_.size()));
      }
      if (random_.below(12) == 0) {
        policy_.feed(policy_event::Scaled{1 + static_cast<std::uint32_t>(random_.below(9))});
        answer(0.4);
      }
      policy_.wait(seconds(1 + random_.below(600)));
    }
    for (int round = 0; round < 600; ++round) {
      answer(0);
      policy_.wait(seconds(60));
    }
    expect_composition();
  }

 private:
  struct Living {
    std::string id;
    std::string zone;
  };

  static ReplacementOptions options_of(RandomStream& random) {
    ReplacementOptions options = two_and_one();
    options.target = 0;
    for (OfferTerms& terms : options.offers) {
      terms.price_per_hour = 1 + random.unit();
      terms.wanted = static_cast<std::uint32_t>(random.below(4));
      terms.workers_most = random.below(2) == 0 ? 0 : 6;
      options.target += terms.wanted;
    }
    options.offers[0].wanted += options.target == 0 ? 1 : 0;
    options.target = std::max(1u, options.target);
    options.lifetime_max = Duration(0);
    return options;
  }

  /// Carries out the present requests and drains, and those that follow from them.
  void answer(double refused) {
    std::vector<policy_effect::Request> open = policy_.requests;
    std::vector<MemberId> leaving = policy_.drains;
    while (!open.empty() || !leaving.empty()) {
      if (!leaving.empty()) {
        members_.erase(leaving.back());
        policy_.feed(policy_event::Gone{leaving.back()});
        leaving.pop_back();
      } else {
        const policy_effect::Request request = open.back();
        open.pop_back();
        if (random_.unit() < refused) {
          policy_.refuse(request, error_of(ProviderErrorKind::kCapacity));
        } else {
          policy_.grant(request);
          join(request.request.offer.zone, open, leaving);
        }
      }
      take(open, leaving);
    }
  }

  void take(std::vector<policy_effect::Request>& open, std::vector<MemberId>& leaving) {
    open.insert(open.end(), policy_.requests.begin(), policy_.requests.end());
    leaving.insert(leaving.end(), policy_.drains.begin(), policy_.drains.end());
    std::map<std::string, std::uint32_t> present;
    for (const auto& [member, living] : members_) {
      present[living.zone] += std::ranges::find(leaving, member) == leaving.end() ? 1 : 0;
    }
    for (const OfferTerms& terms : options_.offers) {
      if (terms.workers_most > 0) {
        EXPECT_LE(present[terms.offer.zone], terms.workers_most + 1) << "and one that gives way";
      }
    }
    policy_.requests.clear();
    policy_.drains.clear();
  }

  void join(const std::string& zone, std::vector<policy_effect::Request>& open,
            std::vector<MemberId>& leaving) {
    take(open, leaving);
    const MemberId member{++made_};
    members_[member] = {"s" + std::to_string(policy_.servers_made), zone};
    policy_.feed(policy_event::Joined{member, members_[member].id});
    take(open, leaving);
    policy_.feed(policy_event::Measured{member, 1.0});
  }

  void lose(std::size_t place) {
    const auto member = std::next(members_.begin(), static_cast<std::ptrdiff_t>(place));
    const MemberId id = member->first;
    members_.erase(member);
    policy_.feed(policy_event::Gone{id});
    answer(0.4);
    policy_.wait(seconds(20));
    answer(0.4);
  }

  void expect_composition() {
    const std::uint32_t target = policy_.status().target;
    const std::vector<std::uint32_t> wanted = OfferCatalog(options_.offers, {}).wanted_of(target);
    std::vector<std::uint32_t> have(wanted.size(), 0);
    for (const auto& [member, living] : members_) {
      ++have[static_cast<std::size_t>(living.zone[0] - 'a')];
    }
    EXPECT_EQ(members_.size(), target);
    if (std::accumulate(wanted.begin(), wanted.end(), 0u) == target) {
      EXPECT_EQ(have, wanted);
    }
  }

  RandomStream random_;
  const ReplacementOptions options_;
  PolicyHarness policy_;
  std::map<MemberId, Living> members_;
  std::uint64_t made_ = 0;
};

TEST(Composition, IsMetAfterWhateverCameBefore) {
  for (std::uint64_t seed = 1; seed <= 40 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomOffers(seed).run();
  }
}

}  // namespace
}  // namespace mayfly::cloud_hooks
