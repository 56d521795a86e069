#include "engine/compare/switch_search.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace mayfly::engine {
namespace {

using Accuracy = std::function<std::optional<double>(const SwitchRun&)>;

SwitchSearchOptions options(std::uint64_t steps = 1600, std::uint32_t probes = 5) {
  SwitchSearchOptions made;
  made.steps = steps;
  made.runs = 3;
  made.probes = probes;
  made.first_seed = 11;
  return made;
}

/// Runs that switch at this step or later reach 0.9, earlier ones `less` below it.
Accuracy needs(std::uint64_t step, double less) {
  return [step, less](const SwitchRun& run) -> std::optional<double> {
    return run.bsp_steps >= step ? 0.9 : 0.9 - less;
  };
}

SwitchSearch searched(const SwitchSearchOptions& options, const Accuracy& accuracy) {
  SwitchSearch search(options);
  while (const std::optional<SwitchRun> run = search.next()) {
    search.finished(accuracy(*run), 10 + static_cast<double>(run->bsp_steps) / 100);
  }
  return search;
}

std::vector<std::uint64_t> tried(const SwitchSearch& search) {
  std::vector<std::uint64_t> steps;
  for (const SwitchPoint& point : search.points()) {
    steps.push_back(point.bsp_steps);
  }
  return steps;
}

TEST(SwitchSearch, HalvesTheStepsBetweenWhatIsAndIsNotAccurate) {
  const SwitchSearch search = searched(options(), needs(90, 0.05));
  EXPECT_EQ(tried(search), (std::vector<std::uint64_t>{1600, 800, 400, 200, 100, 50}));
  EXPECT_EQ(search.best().bsp_steps, 100U);
  EXPECT_EQ(search.points().back().verdict, SwitchVerdict::kRejected);
  EXPECT_EQ(tried(searched(options(), needs(500, 0.05))),
            (std::vector<std::uint64_t>{1600, 800, 400, 600, 500, 450}));
}

TEST(SwitchSearch, AsksForEveryRunOfAPointWithTheSameSeeds) {
  SwitchSearch search(options());
  std::vector<SwitchRun> asked;
  while (const std::optional<SwitchRun> run = search.next()) {
    asked.push_back(*run);
    search.finished(0.9, 1);
  }
  ASSERT_EQ(asked.size(), 18U);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    EXPECT_EQ(asked[i].seed, 11 + i % 3);
  }
}

TEST(SwitchSearch, AcceptsWhatIsBetterAndWhatIsWithinTheTolerance) {
  EXPECT_EQ(searched(options(), needs(0, 0)).best().bsp_steps, 50U);
  EXPECT_EQ(searched(options(), needs(1600, 0.009)).best().bsp_steps, 50U);
  EXPECT_EQ(searched(options(), needs(1600, 0.011)).best().bsp_steps, 1600U);
  EXPECT_EQ(searched(options(), needs(1600, -0.2)).best().bsp_steps, 50U) << "better is fine";
}

TEST(SwitchSearch, RejectsAPointWithItsFirstRunThatFails) {
  const SwitchSearch search = searched(options(), [](const SwitchRun& run) {
    return run.bsp_steps < 700 && run.seed == 12 ? std::nullopt : std::optional(0.9);
  });
  EXPECT_EQ(search.best().bsp_steps, 700U);
  const SwitchPoint& failed = search.points()[2];
  EXPECT_EQ(failed.bsp_steps, 400U);
  EXPECT_EQ(failed.verdict, SwitchVerdict::kRejected);
  EXPECT_EQ(failed.top1.size(), 1U) << "the run after it is not made";
}

TEST(SwitchSearch, AimsAtTheRunsOfBspThatEndWell) {
  const SwitchSearch some = searched(options(), [](const SwitchRun& run) {
    return run.bsp_steps == 1600 && run.seed == 11 ? std::nullopt : std::optional(0.9);
  });
  EXPECT_FALSE(some.is_void());
  EXPECT_EQ(some.best().bsp_steps, 50U);
  const SwitchSearch none =
      searched(options(), [](const SwitchRun&) -> std::optional<double> { return std::nullopt; });
  EXPECT_TRUE(none.is_void());
  EXPECT_EQ(none.points().size(), 1U);
}

TEST(SwitchSearch, EndsWhenThereIsNoStepBetween) {
  EXPECT_EQ(tried(searched(options(5, 50), needs(2, 0.5))), (std::vector<std::uint64_t>{5, 2, 1}));
  EXPECT_EQ(tried(searched(options(2, 50), needs(2, 0.5))), (std::vector<std::uint64_t>{2, 1}));
}

TEST(SwitchReport, SaysWhatToDo) {
  SwitchReportFacts facts;
  facts.options = options();
  facts.then = "asp{lr=0.5x}";
  const SwitchSearch search = searched(facts.options, needs(90, 0.05));
  EXPECT_EQ(switch_phases(search, facts), "bsp:100steps,asp{lr=0.5x}");
  const std::string table = switch_table(search, facts);
  for (const char* words : {"6.25", "rejected", "target", "Switch after 6.25 %",
                            "--phases \"bsp:100steps,asp{lr=0.5x}\"", "later jobs save"}) {
    EXPECT_NE(table.find(words), std::string::npos) << words << " in\n" << table;
  }
  const std::string page = switch_page(search, facts);
  for (const char* text : {"When to switch from bsp to asp{lr=0.5x}", "Test accuracy by the share",
                           "Time by the share", "less 1.00 points"}) {
    EXPECT_NE(page.find(text), std::string::npos) << text;
  }
  const SwitchSearch never = searched(facts.options, needs(1600, 0.05));
  EXPECT_NE(switch_table(never, facts).find("stay in bsp"), std::string::npos);
  EXPECT_EQ(switch_phases(never, facts), "bsp");
}

TEST(SwitchReport, CountsTheTimeOfRunsThatFailed) {
  SwitchReportFacts facts;
  facts.options = options(4, 2);
  SwitchSearch search(facts.options);
  for (int i = 0; i < 3; ++i) {
    search.finished(0.9, 20);
  }
  search.finished(std::nullopt, 5);
  for (int i = 0; i < 3; ++i) {
    search.finished(0.9, 10);
  }
  ASSERT_FALSE(search.next());
  EXPECT_NE(
      switch_table(search, facts).find("The search trained for 95 s, which 10 later jobs save."),
      std::string::npos)
      << switch_table(search, facts);
}

TEST(SwitchReport, OfASearchThatIsNotOverSaysSo) {
  SwitchReportFacts facts;
  facts.options = options();
  SwitchSearch search(facts.options);
  EXPECT_NE(switch_table(search, facts).find("not complete"), std::string::npos);
  search.finished(0.9, 12);
  EXPECT_NE(switch_table(search, facts).find("not complete"), std::string::npos);
  EXPECT_NE(switch_page(search, facts).find("not complete"), std::string::npos);
}

}  // namespace
}  // namespace mayfly::engine
