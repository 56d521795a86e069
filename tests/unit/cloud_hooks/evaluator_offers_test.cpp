// Servers for evaluators are requested beside those for workers, replaced when they are lost, and
// never counted as workers.

#include <gtest/gtest.h>

#include "tests/unit/cloud_hooks/policy_harness.hpp"

namespace mayfly::cloud_hooks {
namespace {

using test_support::error_of;
using test_support::listed;
using test_support::offer;
using test_support::PolicyHarness;
using test_support::two_zones;

/// Two workers on the offers of two_zones(), and one evaluator on a separate offer.
ReplacementOptions with_evaluator() {
  ReplacementOptions options = two_zones();
  options.max = 2;
  options.evaluators = 1;
  options.offers.push_back({offer("c"), 0.1, 1.0, true});
  return options;
}

std::uint32_t requested(const PolicyHarness& policy, const std::string& zone) {
  std::uint32_t count = 0;
  for (const policy_effect::Request& effect : policy.requests) {
    count += effect.request.offer.zone == zone ? effect.request.count : 0;
  }
  return count;
}

TEST(EvaluatorOffers, AreUsedForEvaluatorsOnlyAlthoughTheyAreCheaper) {
  const PolicyHarness policy(with_evaluator());
  EXPECT_EQ(requested(policy, "a"), 2u);
  EXPECT_EQ(requested(policy, "b"), 0u);
  EXPECT_EQ(requested(policy, "c"), 1u);
  EXPECT_DOUBLE_EQ(policy.status().per_hour, 2.1) << "an evaluator is billed too";
}

TEST(EvaluatorOffers, ALostEvaluatorIsReplacedByAnEvaluator) {
  PolicyHarness policy(with_evaluator());
  policy.settle();  // s1 and s2 are for workers, s3 is for the evaluator
  EXPECT_EQ(policy.status().staying, 2u);
  policy.feed(policy_event::Gone{MemberId{3}});
  policy.feed(listed({"s1", "s2", "s3"}));
  policy.wait(seconds(60));
  EXPECT_EQ(requested(policy, "c"), 1u);
  EXPECT_EQ(policy.requests.size(), 1u);
  EXPECT_EQ(policy.releases, std::vector<std::string>{"s3"});
}

TEST(EvaluatorOffers, ALostWorkerIsReplacedByAWorker) {
  PolicyHarness policy(with_evaluator());
  policy.settle();
  policy.feed(policy_event::Gone{MemberId{1}});
  policy.wait(seconds(60));
  EXPECT_EQ(requested(policy, "a"), 1u);
  EXPECT_EQ(policy.requests.size(), 1u);
}

TEST(EvaluatorOffers, FewerWorkersCostNoEvaluator) {
  PolicyHarness policy(with_evaluator());
  policy.settle();
  policy.feed(policy_event::Scaled{1});
  EXPECT_EQ(policy.drains.size(), 1u);
  EXPECT_NE(policy.drains.front(), MemberId{3});
}

TEST(EvaluatorOffers, AnEvaluatorThatIsRefusedDelaysNoWorker) {
  PolicyHarness policy(with_evaluator());
  const std::vector<policy_effect::Request> wanted = policy.requests;
  for (const policy_effect::Request& request : wanted) {
    if (request.request.offer.zone == "c") {
      policy.refuse(request, error_of(ProviderErrorKind::kCapacity));
    }
  }
  EXPECT_TRUE(policy.was_told("offers_exhausted"));
  EXPECT_TRUE(policy.requests.empty()) << "workers' offers are not for evaluators";
  policy.wait(seconds(6));
  EXPECT_EQ(requested(policy, "c"), 1u) << "requested again later";
}

TEST(EvaluatorOffers, WorkersHavePriorityInTheBudget) {
  ReplacementOptions options = with_evaluator();
  options.budget_per_hour = 2.05;
  const PolicyHarness policy(options);
  EXPECT_EQ(requested(policy, "a"), 2u);
  EXPECT_EQ(requested(policy, "c"), 0u);
  EXPECT_TRUE(policy.was_told("budget"));
}

TEST(EvaluatorOffers, AtTheEndTheEvaluatorStaysAsLongAsItIsConnected) {
  PolicyHarness policy(with_evaluator());
  policy.settle();
  policy.feed(policy_event::Closing{});
  policy.feed(policy_event::Gone{MemberId{1}});
  EXPECT_EQ(policy.releases, std::vector<std::string>{"s1"}) << "its worker has done its work";
  policy.feed(policy_event::Gone{MemberId{2}});
  policy.wait(seconds(600));
  EXPECT_EQ(std::ranges::count(policy.releases, "s3"), 0);
  policy.feed(policy_event::Gone{MemberId{3}});
  EXPECT_EQ(policy.releases, std::vector<std::string>{"s3"});
  EXPECT_TRUE(policy.requests.empty()) << "nothing is replaced any more";
}

}  // namespace
}  // namespace mayfly::cloud_hooks
