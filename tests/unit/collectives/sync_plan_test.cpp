#include "collectives/parameter_server/core/sync_plan.hpp"

#include <gtest/gtest.h>

#include "collectives/parameter_server/core/update_order.hpp"

namespace mayfly::parameter_server {
namespace {

constexpr JobLength kLength{
    .first_step = 0, .last_step = 400, .slices_per_step = 4, .samples_per_step = 128};

std::vector<SyncPhase> phases_of(const std::string& text, JobLength length = kLength) {
  Result<SyncPlan> plan = parse_phases(text, length);
  return plan.ok() ? plan.value().phases() : std::vector<SyncPhase>{};
}

TEST(SyncPolicyText, ReadsBackToTheSamePolicy) {
  for (const std::string text : {"bsp", "asp", "ssp:0", "ssp:17", "backup:3-of-4"}) {
    const Result<SyncPolicy> policy = parse_sync_policy(text);
    ASSERT_TRUE(policy.ok()) << text;
    EXPECT_EQ(to_text(policy.value()), text);
  }
}

TEST(SyncPolicyText, IsRefusedWithTheKnownOnesIfItMeansNothing) {
  for (const char* text : {"", "BSP", "ssp", "ssp:", "ssp:-1", "ssp:x", "backup:3", "backup:0-of-4",
                           "backup:5-of-4", "backup:3-of-", "asp:2"}) {
    const Result<SyncPolicy> policy = parse_sync_policy(text);
    ASSERT_FALSE(policy.ok()) << text;
    EXPECT_NE(policy.error().detail.find("backup:N-of-M"), std::string::npos);
  }
}

TEST(SyncPhases, TakeSharesStepsAndSamplesOfTheWholeJob) {
  const std::vector<SyncPhase> expected = {{{SyncKind::kBsp, 0, 0, 0}, 0, 100},
                                           {{SyncKind::kAsp, 0, 0, 0}, 100, 1600}};
  EXPECT_EQ(phases_of("bsp:6.25%,asp"), expected);
  EXPECT_EQ(phases_of("bsp:25steps,asp"), expected);
  EXPECT_EQ(phases_of("bsp:3200samples,asp:1%"), expected);
  EXPECT_EQ(phases_of("ssp:2:50%,bsp").front().policy.staleness, 2U);
}

TEST(SyncPhases, OfAResumedJobBeginWhereItStands) {
  JobLength length = kLength;
  length.first_step = 30;
  const std::vector<SyncPhase> phases = phases_of("bsp:25steps,asp", length);
  ASSERT_EQ(phases.size(), 1U);
  EXPECT_EQ(phases[0].first, 120U);
  EXPECT_EQ(phases[0].policy.kind, SyncKind::kAsp);
}

TEST(SyncPhases, AreRefusedIfALengthIsMissingOrNone) {
  for (const char* text :
       {"bsp,asp", "bsp:0%,asp", "bsp:-5%,asp", "bsp:nan%,asp", "", "bsp:5%,", "backup:3-of-4"}) {
    EXPECT_FALSE(parse_phases(text, kLength).ok()) << text;
  }
}

TEST(SyncPlanVersions, CountUpdatesOfEveryKindOfPhase) {
  const Result<SyncPlan> plan = parse_phases("bsp:10steps,asp:10steps,backup:2-of-3", kLength);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan.value().version_at(0), 0U);
  EXPECT_EQ(plan.value().version_at(40), 10U);
  EXPECT_EQ(plan.value().version_at(80), 50U);
  EXPECT_EQ(plan.value().version_at(1600), 50U + 760);
}

TEST(RateRules, ScaleWithTheShareOfTheGlobalBatch) {
  EXPECT_DOUBLE_EQ(rate_factor(parse_rate_rule("linear").value(), 0.25), 0.25);
  EXPECT_DOUBLE_EQ(rate_factor(parse_rate_rule("sqrt").value(), 0.25), 0.5);
  EXPECT_DOUBLE_EQ(rate_factor(parse_rate_rule("fixed").value(), 0.25), 1);
  EXPECT_FALSE(parse_rate_rule("square").ok());
}

Push push_of(std::uint64_t worker, std::uint64_t slice, std::uint64_t base, std::uint64_t clock) {
  return {MemberId{worker}, slice, base, clock, base};  // and wants what there is
}

TEST(UpdateOrder, SumsARoundByTheNumbersOfItsSlicesWhoeverIsFirst) {
  const SyncPlan plan = parse_phases("bsp", kLength).value();
  UpdateOrder order(plan);
  for (const std::uint64_t slice : {2U, 0U, 3U}) {
    EXPECT_FALSE(order.pushed({MemberId{slice}, slice, 0, 1, 1}).value().update);
  }
  const PushOutcome last = order.pushed({MemberId{1}, 1, 0, 1, 1}).value();
  ASSERT_TRUE(last.update);
  EXPECT_EQ(last.update->slices, (std::vector<std::uint64_t>{0, 1, 2, 3}));
  EXPECT_EQ(last.answers.size(), 4U);
}

TEST(UpdateOrder, AnswersARepeatWithoutApplyingIt) {
  const SyncPlan plan = parse_phases("asp", kLength).value();
  UpdateOrder order(plan);
  EXPECT_EQ(order.pushed(push_of(1, 0, 0, 1)).value().fate, PushFate::kApplied);
  const PushOutcome again = order.pushed(push_of(2, 0, 0, 1)).value();
  EXPECT_EQ(again.fate, PushFate::kRepeat);
  EXPECT_EQ(again.answers, std::vector<MemberId>{MemberId{2}});
  EXPECT_EQ(order.version(), 1U);
}

TEST(UpdateOrder, RefusesWhatNoLeaseAllows) {
  const SyncPlan plan = parse_phases("bsp:10steps,asp", kLength).value();
  UpdateOrder order(plan);
  EXPECT_FALSE(order.pushed(push_of(1, 4, 0, 1)).ok()) << "a step that has not begun";
  EXPECT_FALSE(order.pushed(push_of(1, 40, 0, 1)).ok()) << "a phase that has not begun";
  EXPECT_FALSE(order.pushed(push_of(1, 0, 7, 1)).ok()) << "parameters that do not exist";
  EXPECT_FALSE(order.pushed(push_of(1, 5000, 0, 1)).ok()) << "no slice of the job";
  EXPECT_EQ(order.staged(), 0U);
}

TEST(UpdateOrder, KeepsWhoIsTooFarAheadWaitingUntilTheSlowestMovesOrIsGone) {
  const SyncPlan plan = parse_phases("ssp:1", kLength).value();
  UpdateOrder order(plan);
  EXPECT_EQ(order.pulled(MemberId{1}, 0, 0).size(), 1U);
  EXPECT_EQ(order.pulled(MemberId{2}, 0, 0).size(), 1U);
  EXPECT_EQ(order.pushed(push_of(1, 0, 0, 1)).value().answers.size(), 1U) << "one ahead is allowed";
  EXPECT_TRUE(order.pushed(push_of(1, 2, 1, 2)).value().answers.empty()) << "two are not";
  EXPECT_EQ(order.pushed(push_of(2, 1, 0, 1)).value().answers.size(), 2U);
  EXPECT_TRUE(order.pushed(push_of(1, 3, 3, 3)).value().answers.empty());
  EXPECT_EQ(order.gone(MemberId{2}), std::vector<MemberId>{MemberId{1}});
}

}  // namespace
}  // namespace mayfly::parameter_server
