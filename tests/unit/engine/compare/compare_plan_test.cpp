#include "engine/compare/compare_plan.hpp"

#include <gtest/gtest.h>

#include <set>

namespace mayfly::engine {
namespace {

std::string setting_of(const CompareCell& cell, const std::string& name) {
  std::string text = "unset";
  for (const auto& [key, value] : cell.settings) {
    text = key == name ? value : text;
  }
  return text;
}

TEST(ComparePlan, HasEveryVariantUnderEveryConditionWithEverySeed) {
  CompareOptions options;
  options.variants = "allreduce bsp bsp:25%,asp+elastic";
  options.conditions = "clean straggler kill";
  options.seeds = 2;
  options.first_seed = 5;
  const Result<ComparePlan> plan = make_compare_plan(options);
  ASSERT_TRUE(plan.ok()) << plan.error().detail;
  ASSERT_EQ(plan.value().cells.size(), 18U);
  std::set<std::string> ids;
  std::set<std::string> steps;
  for (const CompareCell& cell : plan.value().cells) {
    ids.insert(cell.id);
    steps.insert(setting_of(cell, "steps") + "x" + setting_of(cell, "global_batch"));
    EXPECT_EQ(setting_of(cell, "seed"), std::to_string(cell.seed));
    EXPECT_EQ(setting_of(cell, "inject"), cell.condition == "straggler"
                                              ? "slow=3x,worker=1,from=step21,to=step60; "
                                                "slow=3x,worker=1,from=step101,to=step140; "
                                                "slow=3x,worker=1,from=step181,to=step220; "
                                                "slow=3x,worker=1,from=step261,to=step300"
                                              : "");
    EXPECT_EQ(setting_of(cell, "chaos").empty(), cell.condition != "kill");
  }
  EXPECT_EQ(ids.size(), 18U) << "two runs would share a folder";
  EXPECT_EQ(steps.size(), 1U) << "not the same sample budget";
  EXPECT_EQ(plan.value().cells.front().seed, 5U);
  EXPECT_EQ(plan.value().cells.back().seed, 6U);
}

TEST(ComparePlan, KnowsTheBytesOfAGradient) {
  CompareOptions options;
  options.variants = "allreduce";
  const auto bytes = [&options] {
    return make_compare_plan(options).value().cells.front().size.gradient_bytes;
  };
  EXPECT_EQ(bytes(), 4U);
  options.settings = {{"reduction", "fp32"}};
  EXPECT_EQ(bytes(), 4U);
  options.settings = {{"reduction", "fp32"}, {"wire", "bf16"}};
  EXPECT_EQ(bytes(), 2U);
  options.settings = {{"wire", "int16"}};
  EXPECT_EQ(bytes(), 2U);
}

TEST(ComparePlan, WhatHappensToOneWorkerNeedsAnother) {
  CompareOptions options;
  options.variants = "allreduce";
  options.settings = {{"workers", "1"}};
  for (const char* condition : {"straggler", "kill", "clean straggler+kill"}) {
    options.conditions = condition;
    EXPECT_EQ(make_compare_plan(options).error().code, Errc::kInvalidInput) << condition;
  }
  options.conditions = "clean";
  EXPECT_TRUE(make_compare_plan(options).ok());
}

TEST(ComparePlan, TakesTheUsersSettingsBeforeItsOwn) {
  CompareOptions options;
  options.quick = true;
  options.variants = "bsp";
  options.conditions = "straggler+kill";
  options.seeds = 1;
  options.settings = {{"steps", "90"}, {"workers", "3"}, {"inject", "delay=9ms,worker=0"}};
  const Result<ComparePlan> plan = make_compare_plan(options);
  ASSERT_TRUE(plan.ok()) << plan.error().detail;
  const CompareCell& cell = plan.value().cells.front();
  EXPECT_EQ(setting_of(cell, "steps"), "90");
  EXPECT_EQ(setting_of(cell, "inject"), "delay=9ms,worker=0");
  EXPECT_EQ(setting_of(cell, "chaos"), "kill@step=30:worker=2,join@step=39");
}

TEST(ComparePlan, OfAFewStepsHasAStragglerToo) {
  for (const char* steps : {"1", "3", "17"}) {
    CompareOptions options;
    options.variants = "allreduce";
    options.conditions = "straggler";
    options.settings = {{"steps", steps}};
    const Result<ComparePlan> plan = make_compare_plan(options);
    ASSERT_TRUE(plan.ok()) << plan.error().detail;
    EXPECT_NE(setting_of(plan.value().cells.front(), "inject"), "");
  }
}

TEST(ComparePlan, KnowsHowManySamplesARunComputesAgainAtOnce) {
  CompareOptions options;
  options.variants = "allreduce bsp";
  options.conditions = "clean";
  options.seeds = 1;
  options.settings = {{"global_batch", "64"}, {"microbatch", "8"}, {"workers", "4"}};
  const Result<ComparePlan> plan = make_compare_plan(options);
  ASSERT_TRUE(plan.ok()) << plan.error().detail;
  EXPECT_EQ(plan.value().cells[0].size.microbatch, 8U);
  EXPECT_EQ(plan.value().cells[0].size.slice, 0U);
  EXPECT_EQ(plan.value().cells[1].size.slice, 16U);
}

TEST(ComparePlan, LeavesWhatIsForServersAloneOutOfAllReduce) {
  CompareOptions options;
  options.variants = "allreduce asp";
  options.conditions = "clean";
  options.seeds = 1;
  options.settings = {{"lr_rule", "live-linear"}, {"ps", "colocated"}};
  const Result<ComparePlan> plan = make_compare_plan(options);
  ASSERT_TRUE(plan.ok()) << plan.error().detail;
  for (const char* name : {"lr_rule", "ps"}) {
    EXPECT_EQ(setting_of(plan.value().cells.front(), name), "unset");
    EXPECT_NE(setting_of(plan.value().cells.back(), name), "unset");
  }
}

TEST(ComparePlan, IsRefusedBeforeAnythingRunsIfAPartOfItCannotBe) {
  for (const auto& [variants, conditions, word] :
       {std::tuple("bsp fast", "clean", "variant 'fast'"),
        std::tuple("bsp+soon", "clean", "variant 'bsp+soon'"),
        std::tuple("bsp,asp", "clean", "variant 'bsp,asp'"), std::tuple("", "clean", "a variant"),
        std::tuple("bsp", "sunny", "condition 'sunny'")}) {
    CompareOptions options;
    options.variants = variants;
    options.conditions = conditions;
    const Result<ComparePlan> plan = make_compare_plan(options);
    ASSERT_FALSE(plan.ok()) << variants;
    EXPECT_NE(plan.error().detail.find(word), std::string::npos) << plan.error().detail;
  }
  CompareOptions options;
  options.settings = {{"inject", "slow=fast"}};
  EXPECT_FALSE(make_compare_plan(options).ok());
}

TEST(ComparePlan, HasADifferentFingerprintForOtherSettings) {
  CompareOptions options;
  const std::string one = make_compare_plan(options).value().fingerprint();
  options.seeds = 9;
  EXPECT_EQ(make_compare_plan(options).value().fingerprint(), one) << "more runs of the same";
  options.settings = {{"lr", "0.2"}};
  EXPECT_NE(make_compare_plan(options).value().fingerprint(), one);
}

TEST(ComparePlan, CanBeAskedForAgain) {
  CompareOptions options;
  options.folder = "out";
  options.variants = "bsp asp";
  options.conditions = "clean";
  options.quick = true;
  options.settings = {{"global_batch", "64"}};
  EXPECT_EQ(compare_words(options),
            (std::vector<std::string>{"mayfly", "compare", "--output", "out", "--variants",
                                      "bsp asp", "--conditions", "clean", "--seeds", "3",
                                      "--first-seed", "1", "--quick", "--global-batch", "64"}));
}

}  // namespace
}  // namespace mayfly::engine
