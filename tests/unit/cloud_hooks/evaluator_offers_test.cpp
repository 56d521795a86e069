// Servers for evaluators: requested beside those of workers, replaced, never counted as workers.

#include <gtest/gtest.h>

#include "tests/unit/cloud_hooks/policy_desk.hpp"

namespace mayfly::cloud_hooks {
namespace {

using test_support::Desk;
using test_support::error_of;
using test_support::offer;
using test_support::two_zones;

/// Two workers on the offers of two_zones(), one evaluator on an offer of its own.
ReplacementOptions with_evaluator() {
  ReplacementOptions options = two_zones();
  options.max = 2;
  options.evaluators = 1;
  options.offers.push_back({offer("c"), 0.1, 1.0, true});
  return options;
}

std::uint32_t requested(const Desk& desk, const std::string& zone) {
  std::uint32_t count = 0;
  for (const policy_effect::Request& effect : desk.requests) {
    count += effect.request.offer.zone == zone ? effect.request.count : 0;
  }
  return count;
}

TEST(EvaluatorOffers, AreUsedForEvaluatorsOnlyAlthoughTheyAreCheaper) {
  const Desk desk(with_evaluator());
  EXPECT_EQ(requested(desk, "a"), 2u);
  EXPECT_EQ(requested(desk, "b"), 0u);
  EXPECT_EQ(requested(desk, "c"), 1u);
  EXPECT_DOUBLE_EQ(desk.status().per_hour, 2.1) << "an evaluator is billed too";
}

TEST(EvaluatorOffers, ALostEvaluatorIsReplacedByAnEvaluator) {
  Desk desk(with_evaluator());
  desk.settle();  // s1 and s2 are the workers', s3 is the evaluator's
  EXPECT_EQ(desk.status().staying, 2u);
  desk.feed(policy_event::Gone{MemberId{3}});
  desk.wait(seconds(60));
  EXPECT_EQ(requested(desk, "c"), 1u);
  EXPECT_EQ(desk.requests.size(), 1u);
  EXPECT_EQ(desk.releases, std::vector<std::string>{"s3"});
}

TEST(EvaluatorOffers, ALostWorkerIsReplacedByAWorker) {
  Desk desk(with_evaluator());
  desk.settle();
  desk.feed(policy_event::Gone{MemberId{1}});
  desk.wait(seconds(60));
  EXPECT_EQ(requested(desk, "a"), 1u);
  EXPECT_EQ(desk.requests.size(), 1u);
}

TEST(EvaluatorOffers, FewerWorkersCostNoEvaluator) {
  ReplacementOptions options = with_evaluator();
  options.min = 1;
  Desk desk(options);
  desk.settle();
  desk.feed(policy_event::Scaled{1});
  EXPECT_EQ(desk.drains.size(), 1u);
  EXPECT_NE(desk.drains.front(), MemberId{3});
}

TEST(EvaluatorOffers, AnEvaluatorThatIsRefusedDelaysNoWorker) {
  Desk desk(with_evaluator());
  const std::vector<policy_effect::Request> wanted = desk.requests;
  for (const policy_effect::Request& request : wanted) {
    if (request.request.offer.zone == "c") {
      desk.refuse(request, error_of(ProviderErrorKind::kCapacity));
    }
  }
  EXPECT_TRUE(desk.was_told("offers_exhausted"));
  EXPECT_TRUE(desk.requests.empty()) << "workers' offers are not for evaluators";
  desk.wait(seconds(6));
  EXPECT_EQ(requested(desk, "c"), 1u) << "requested again later";
}

TEST(EvaluatorOffers, WorkersHavePriorityInTheBudget) {
  ReplacementOptions options = with_evaluator();
  options.budget_per_hour = 2.05;
  const Desk desk(options);
  EXPECT_EQ(requested(desk, "a"), 2u);
  EXPECT_EQ(requested(desk, "c"), 0u);
  EXPECT_TRUE(desk.was_told("budget"));
}

TEST(EvaluatorOffers, AtTheEndTheEvaluatorStaysAsLongAsItIsConnected) {
  Desk desk(with_evaluator());
  desk.settle();
  desk.feed(policy_event::Closing{});
  desk.feed(policy_event::Gone{MemberId{1}});
  EXPECT_EQ(desk.releases, std::vector<std::string>{"s1"}) << "its worker has done its work";
  desk.feed(policy_event::Gone{MemberId{2}});
  desk.wait(seconds(600));
  EXPECT_EQ(std::ranges::count(desk.releases, "s3"), 0);
  desk.feed(policy_event::Gone{MemberId{3}});
  EXPECT_EQ(desk.releases, std::vector<std::string>{"s3"});
  EXPECT_TRUE(desk.requests.empty()) << "nothing is replaced any more";
}

}  // namespace
}  // namespace mayfly::cloud_hooks
