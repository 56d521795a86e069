#include "collectives/parameter_server/core/sync_plan.hpp"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "collectives/parameter_server/core/update_order.hpp"

namespace mayfly::parameter_server {
namespace {

constexpr JobLength kLength{
    .first_step = 0, .last_step = 400, .slices_per_step = 4, .samples_per_step = 128};

std::vector<SyncPhase> phases_of(const std::string& text, JobLength length = kLength) {
  Result<SyncPlan> plan = parse_phases(text, length);
  return plan.ok() ? plan.value().phases() : std::vector<SyncPhase>{};
}

/// The policy and the slices of each phase, as text.
std::string shown(const std::string& text, const JobLength& length = kLength) {
  std::string all;
  for (const SyncPhase& phase : phases_of(text, length)) {
    all += to_text(phase.policy) + " " + std::to_string(phase.first) + "-" +
           std::to_string(phase.last) + " ";
  }
  return all;
}

std::string refusal_of(const std::string& text) {
  const Result<SyncPlan> plan = parse_phases(text, kLength);
  return plan.ok() ? "" : plan.error().detail;
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

TEST(SyncPolicyText, SaysWhichNumberOfABackupIsWrong) {
  for (const std::string number : {"0", "5"}) {
    EXPECT_EQ(parse_sync_policy("backup:" + number + "-of-4").error().detail,
              "an update of backup:N-of-M is the mean of N of M slices, so N is from 1 to 4, not " +
                  number);
  }
}

TEST(SyncPhases, TakeSharesStepsAndSamplesOfTheWholeJob) {
  for (const char* text : {"bsp:6.25%,asp", "bsp:25steps,asp", "bsp:3200samples,asp:1%"}) {
    EXPECT_EQ(shown(text), "bsp 0-100 asp 100-1600 ") << text;
  }
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

TEST(SyncPhases, HaveSettingsOfTheirOwn) {
  const auto phases = phases_of(
      "bsp:25%{lr=2x,momentum=0.8},ssp:1:25%{weight-decay=0,lr_rule=sqrt},asp{checkpoint-every=7}");
  ASSERT_EQ(phases.size(), 3U);
  EXPECT_EQ(phases[0].settings.rate, 2);
  EXPECT_EQ(phases[0].settings.momentum, 0.8);
  EXPECT_FALSE(phases[0].settings.weight_decay.has_value());
  EXPECT_EQ(phases[1].settings.rate, 1);
  EXPECT_EQ(phases[1].settings.weight_decay, 0.0);
  EXPECT_EQ(phases[1].settings.rule, RateRule::kSqrt);
  EXPECT_EQ(phases[2].settings.checkpoint_every, 7U);
  EXPECT_FALSE(phases[2].settings.momentum.has_value());
}

TEST(SyncPhases, NameThePlaceAndTheTroubleWhenRefused) {
  for (const auto& [text, place, trouble] :
       {std::tuple("bsp:5%,asp{lr=0.5}", "phase 2 'asp{lr=0.5}'", "such as 0.5x"),
        std::tuple("bsp:5%{lr=-1x},asp", "phase 1 'bsp:5%{lr=-1x}'", "such as 0.5x"),
        std::tuple("bsp:5%{momentum=1},asp", "phase 1", "below 1"),
        std::tuple("asp{momentun=0.9}", "phase 1", "unknown setting 'momentun' (known: lr,"),
        std::tuple("asp{lr}", "phase 1", "NAME=VALUE"),
        std::tuple("asp{lr=1x", "phase 1", "'}' is missing"),
        std::tuple("bsp:5%,asp{batch=48}", "phase 2", "not a part of the global batch 128"),
        std::tuple("asp{checkpoint-every=often}", "phase 1", "number of steps")}) {
    EXPECT_NE(refusal_of(text).find(place), std::string::npos) << refusal_of(text);
    EXPECT_NE(refusal_of(text).find(trouble), std::string::npos) << refusal_of(text);
  }
}

TEST(SyncPhases, CutTheirStepsAsTheirBatchAsks) {
  JobLength length = kLength;  // 4 slices of 32 samples
  length.microbatches = 16;    // of 8 samples
  const auto phases = phases_of("bsp:10steps{batch=64},asp:10steps{batch=8},bsp{batch=16}", length);
  ASSERT_EQ(phases.size(), 3U);
  EXPECT_EQ(phases[0].round, 4U);  // two updates a step, four slices each
  EXPECT_EQ(phases[0].slices_per_step, 8U);
  EXPECT_EQ(phases[1].slices_per_step, 16U);
  EXPECT_EQ(phases[1].first, 80U);
  EXPECT_EQ(phases[1].last, 240U);
  EXPECT_EQ(phases[2].round, 2U);  // of two microbatches
  EXPECT_EQ(phases[2].slices_per_step, 16U);
  const SyncPlan plan =
      parse_phases("bsp:10steps{batch=64},asp:10steps{batch=8},bsp{batch=16}", length).value();
  EXPECT_EQ(plan.version_at(80), 20U);
  EXPECT_EQ(plan.version_at(240), 20U + 160);
  EXPECT_EQ(plan.steps_before(79), 9U);
  EXPECT_EQ(plan.steps_before(240), 20U);
  EXPECT_EQ(plan.steps_before(plan.last_slice()), 400U);
  EXPECT_EQ(plan.round_of(247), 246U);
}

TEST(SyncPlans, KnowWhereStepsRoundsAndPhasesBegin) {
  JobLength length = kLength;
  length.microbatches = 16;
  const SyncPlan plan = parse_phases("bsp:10steps{batch=64},asp:10steps,ssp:1", length).value();
  ASSERT_EQ(plan.phases()[0].round, 4U);
  ASSERT_EQ(plan.phases()[0].slices_per_step, 8U);
  for (const auto& [slice, is_cut] :
       {std::pair(0U, true), {4U, false}, {79U, false}, {80U, true}, {81U, false}, {120U, true}}) {
    EXPECT_EQ(plan.is_cut(slice), is_cut) << slice;
  }
  EXPECT_FALSE(plan.is_cut(plan.last_slice()));
  EXPECT_TRUE(plan.is_border(8));
  EXPECT_FALSE(plan.is_border(4)) << "a round, not a step";
  EXPECT_TRUE(plan.is_border(84));
  EXPECT_TRUE(plan.is_border(plan.last_slice()));
  EXPECT_EQ(plan.round_of(3), 0U);
  EXPECT_EQ(plan.round_of(4), 4U);
  EXPECT_EQ(plan.round_of(7), 4U);
  EXPECT_EQ(plan.index_of(79), 0U);
  EXPECT_EQ(plan.index_of(80), 1U);
  EXPECT_EQ(plan.index_of(plan.last_slice()), 2U);
  EXPECT_EQ(plan.steps_before(7), 0U);
  EXPECT_EQ(plan.steps_before(8), 1U);
}

TEST(SyncPhases, KeepTheirNumbersWhenAJobIsResumed) {
  JobLength length = kLength;
  length.microbatches = 16;
  length.first_step = 12;
  const auto phases = phases_of("bsp:10steps{batch=64},asp:10steps{batch=8},bsp", length);
  ASSERT_EQ(phases.size(), 2U);
  EXPECT_EQ(phases[0].first, 80U + 2 * 16);
  EXPECT_EQ(phases[0].first_step, 12U);
  EXPECT_EQ(phases[1].first, 240U);
}

TEST(WarmUps, BeginAJobWithRounds) {
  JobLength length = kLength;
  length.warm_up = parse_warm_up("bsp:10%", length).value();
  EXPECT_EQ(shown("asp", length), "bsp 0-160 asp 160-1600 ");
  EXPECT_EQ(shown("bsp:5%,asp", length), "bsp 0-80 asp 80-1600 ") << "it begins with them";
  EXPECT_EQ(shown("ssp:1:5%,asp", length), "bsp 0-80 asp 80-1600 ") << "no longer than its phase";
  length.first_step = 100;
  EXPECT_EQ(shown("asp", length), "asp 400-1600 ") << "it is over";
}

TEST(WarmUps, LetTheRateRiseAtEachBeginningWithoutRounds) {
  JobLength length = kLength;
  length.warm_up = parse_warm_up("ramp:10steps", length).value();
  const SyncPlan plan = parse_phases("bsp:100steps,asp:5steps,ssp:1{lr=0.5x}", length).value();
  EXPECT_EQ(plan.rate_after(0), 1);
  EXPECT_DOUBLE_EQ(plan.rate_after(400), 1.0 / 40);
  EXPECT_DOUBLE_EQ(plan.rate_after(419), 20.0 / 40);
  EXPECT_DOUBLE_EQ(plan.rate_after(420), 0.5 * 21.0 / 40) << "it goes on in the next phase";
  EXPECT_DOUBLE_EQ(plan.rate_after(439), 0.5);
  EXPECT_DOUBLE_EQ(plan.rate_after(1599), 0.5);
  const SyncPlan cut = plan.cut_after({102, 200}, {});
  EXPECT_DOUBLE_EQ(cut.rate_after(419), 20.0 / 40);
  for (const char* text : {"bsp", "ramp:", "ramp:0%", "slow:5%", "bsp:many"}) {
    EXPECT_FALSE(parse_warm_up(text, kLength).ok()) << text;
  }
}

TEST(SyncPlans, FallBackToEarlierSamplesInRounds) {
  SyncPlan plan = parse_phases("bsp:10steps,asp:90steps,ssp:3", kLength)
                      .value()
                      .cut_after({50}, {100, 390, 400});
  plan.fall_back({.at = 240, .to = 200});  // after step 60; steps 51 to 60 are undone
  EXPECT_EQ(plan.steps_before(239), 59U);
  EXPECT_EQ(plan.steps_before(240), 50U);
  EXPECT_EQ(plan.steps_before(244), 51U);
  EXPECT_EQ(plan.last_slice(), 240U + 350 * 4);
  EXPECT_EQ(plan.steps_before(plan.last_slice()), 400U);
  EXPECT_EQ(plan.version_at(239), 10U + 199);
  EXPECT_EQ(plan.version_at(240), 10U + 200 + 1) << "what is restored has a number of its own";
  EXPECT_EQ(plan.version_at(248), 10U + 200 + 1 + 2);
  std::vector<std::uint64_t> recorded;
  for (const SyncPhase& phase : plan.phases()) {
    if (phase.first >= 240) {
      EXPECT_EQ(to_text(phase.policy), "bsp");
      recorded.push_back(phase.is_recorded ? phase.last_step() : 0);
    }
  }
  EXPECT_EQ(recorded, (std::vector<std::uint64_t>{100, 390, 400}));
}

TEST(RateRules, ScaleWithTheShareOfTheGlobalBatchOrWithWhoLives) {
  EXPECT_DOUBLE_EQ(rate_factor(parse_rate_rule("linear").value(), 0.25, 3), 0.25);
  EXPECT_DOUBLE_EQ(rate_factor(parse_rate_rule("sqrt").value(), 0.25, 3), 0.5);
  EXPECT_DOUBLE_EQ(rate_factor(parse_rate_rule("fixed").value(), 0.25, 3), 1);
  EXPECT_DOUBLE_EQ(rate_factor(parse_rate_rule("live-linear").value(), 0.25, 2), 0.5);
  EXPECT_DOUBLE_EQ(rate_factor(parse_rate_rule("live-sqrt").value(), 0.25, 16), 0.25);
  EXPECT_DOUBLE_EQ(rate_factor(parse_rate_rule("live-sqrt").value(), 1, 16), 1);
  EXPECT_FALSE(parse_rate_rule("square").ok());
}

Push push_of(std::uint64_t worker, std::uint64_t slice, std::uint64_t base, std::uint64_t clock) {
  return {MemberId{worker}, slice, base, clock, base};  // any version will do
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

TEST(UpdateOrder, TakesTheFirstSlicesOfABackupRoundAndDropsTheRest) {
  const SyncPlan plan =
      parse_phases("backup:2-of-3", {.last_step = 2, .slices_per_step = 2, .samples_per_step = 8})
          .value();
  UpdateOrder order(plan);
  EXPECT_FALSE(order.pushed(push_of(3, 2, 0, 1)).value().update);
  const PushOutcome full = order.pushed(push_of(1, 0, 0, 1)).value();
  ASSERT_TRUE(full.update) << "two of three are enough";
  EXPECT_EQ(full.update->slices, (std::vector<std::uint64_t>{0, 2}));
  EXPECT_EQ(full.update->version, 1U);
  EXPECT_EQ(order.staged(), 0U);
  EXPECT_EQ(order.pushed(push_of(2, 1, 0, 1)).value().fate, PushFate::kLate);
  EXPECT_EQ(order.pushed(push_of(2, 1, 1, 2)).value().fate, PushFate::kStaged);
  const PushOutcome last = order.pushed(push_of(1, 3, 1, 2)).value();
  ASSERT_TRUE(last.update);
  EXPECT_EQ(last.update->version, plan.version_at(plan.last_slice()));
  EXPECT_EQ(last.update->step, 2U);
  EXPECT_EQ(last.update->steps_after, 2U);
}

TEST(UpdateOrder, AWorkerThatRestsGetsNothingThatItAskedForBefore) {
  const SyncPlan plan = parse_phases("asp", kLength).value();
  UpdateOrder order(plan);
  EXPECT_TRUE(order.pulled(MemberId{1}, 0, 1).empty()) << "there is no such version yet";
  EXPECT_TRUE(order.rested(MemberId{1}).empty());
  EXPECT_EQ(order.pushed(push_of(2, 0, 0, 1)).value().answers, std::vector<MemberId>{MemberId{2}});
  EXPECT_EQ(order.pulled(MemberId{1}, 0, 1), std::vector<MemberId>{MemberId{1}});
}

TEST(UpdateOrder, NobodyWaitsForAWorkerThatRestsUntilItIsHeardOfAgain) {
  const SyncPlan plan = parse_phases("ssp:1", kLength).value();
  UpdateOrder order(plan);
  (void)order.pulled(MemberId{2}, 0, 0);
  EXPECT_TRUE(order.pulled(MemberId{1}, 2, 0).empty()) << "two ahead are one too many";
  EXPECT_EQ(order.rested(MemberId{2}), std::vector<MemberId>{MemberId{1}});
  EXPECT_EQ(order.pulled(MemberId{1}, 9, 0), std::vector<MemberId>{MemberId{1}});
  EXPECT_EQ(order.pulled(MemberId{2}, 7, 0), std::vector<MemberId>{MemberId{2}});
  EXPECT_TRUE(order.pulled(MemberId{1}, 9, 0).empty());
  EXPECT_TRUE(order.rested(MemberId{3}).empty()) << "nobody knows it";
  EXPECT_EQ(order.pulled(MemberId{2}, 8, 0), (std::vector<MemberId>{MemberId{1}, MemberId{2}}));
  EXPECT_EQ(order.pulled(MemberId{2}, 3, 0), std::vector<MemberId>{MemberId{2}})
      << "clocks do not go back";
  EXPECT_EQ(order.pulled(MemberId{1}, 9, 0), std::vector<MemberId>{MemberId{1}});
}

TEST(UpdateOrder, AnswersAPullOnceAndOnlyWhenThatVersionIsThere) {
  const SyncPlan plan = parse_phases("asp", kLength).value();
  UpdateOrder order(plan);
  EXPECT_TRUE(order.pulled(MemberId{1}, 0, 1).empty());
  EXPECT_EQ(order.pushed(push_of(2, 0, 0, 1)).value().answers,
            (std::vector<MemberId>{MemberId{1}, MemberId{2}}));
  EXPECT_EQ(order.pushed(push_of(2, 1, 0, 2)).value().answers, std::vector<MemberId>{MemberId{2}});
}

}  // namespace
}  // namespace mayfly::parameter_server
