#include "engine/compare/compare_report.hpp"

#include <gtest/gtest.h>

namespace mayfly::engine {
namespace {

RunResult result_of(const std::string& variant, const std::string& condition, double seconds,
                    double top1) {
  RunResult result;
  result.variant = variant;
  result.condition = condition;
  result.outcome = elastic::Outcome::kDone;
  result.train_seconds = seconds;
  result.images_per_second = 1000 / seconds;
  result.top1 = top1;
  result.bytes = 2e6;
  result.accuracy = {{seconds / 2, top1 / 2}, {seconds, top1}};
  return result;
}

TEST(Spreads, AreThoseOfASample) {
  const Spread spread = spread_of({1, 2, 6});
  EXPECT_DOUBLE_EQ(spread.mean, 3);
  EXPECT_NEAR(spread.deviation, 2.6458, 1e-4);
  EXPECT_EQ(spread.least, 1);
  EXPECT_EQ(spread.most, 6);
  EXPECT_EQ(spread_of({}).count, 0U);
  EXPECT_EQ(spread_of({4}).deviation, 0);
}

TEST(CompareRows, GatherTheSeedsOfAVariantAndLeaveOutFailures) {
  std::vector<RunResult> results = {
      result_of("bsp", "clean", 10, 0.8), result_of("bsp", "clean", 20, 0.9),
      result_of("asp", "clean", 5, 0.7), result_of("bsp", "kill", 12, 0.8)};
  results[3].recoveries_ms = {30, 50};
  results[3].redone_samples = 64;
  results[3].worker_seconds = 36;
  results.push_back(result_of("asp", "clean", 1, -1));
  results.back().outcome = elastic::Outcome::kFailed;
  results.back().recoveries_ms = {9};
  results.back().staleness = {{7, 100}};
  const std::vector<CompareRow> rows =
      compare_rows(results, {"allreduce", "bsp", "asp"}, {"clean", "kill"});
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].variant, "bsp");
  EXPECT_EQ(rows[0].runs, 2U);
  EXPECT_DOUBLE_EQ(rows[0].seconds.mean, 15);
  EXPECT_NEAR(rows[0].top1.mean, 0.85, 1e-12);
  EXPECT_EQ(rows[1].failed, 1U);
  EXPECT_EQ(rows[1].recoveries, 0U);
  EXPECT_EQ(rows[1].staleness, 0);
  EXPECT_EQ(rows[1].seconds.count, 1U);
  EXPECT_DOUBLE_EQ(rows[1].seconds.mean, 5);
  EXPECT_EQ(rows[2].recoveries, 2U);
  EXPECT_DOUBLE_EQ(rows[2].recovery_ms, 40);
  EXPECT_DOUBLE_EQ(rows[2].redone.mean, 64);
  EXPECT_DOUBLE_EQ(rows[2].worker_hours.mean, 0.01);
}

TEST(CompareTables, HaveAlignedColumnsAndSayWhatIsComputed) {
  std::vector<RunResult> results = {result_of("allreduce", "clean", 10, 0.8),
                                    result_of("bsp:25%,asp", "straggler", 7, 0.75),
                                    result_of("bsp:25%,asp", "straggler", 9, 0.7)};
  results[1].bytes_counted = results[2].bytes_counted = true;
  const std::string table = compare_table(
      compare_rows(results, {"allreduce", "bsp:25%,asp"}, {"clean", "straggler"}), {});
  EXPECT_NE(table.find("condition  variant"), std::string::npos) << table;
  EXPECT_NE(table.find("8.0 ± 1.4"), std::string::npos) << table;
  EXPECT_NE(table.find("2*"), std::string::npos) << table;
  EXPECT_NE(table.find("* computed"), std::string::npos) << table;
}

TEST(CompareTables, HaveNoBytesOfRunsThatAllFailed) {
  RunResult failed = result_of("asp", "clean", 1, -1);
  failed.outcome = elastic::Outcome::kFailed;
  failed.staleness = {{77, 100}};
  const std::string table = compare_table(compare_rows({failed}, {"asp"}, {"clean"}), {});
  EXPECT_EQ(table.find('*'), std::string::npos) << table;
  const std::string page = compare_page({failed}, {"asp"}, {"clean"}, {}, "mayfly compare");
  EXPECT_EQ(page.find("[77, 100]"), std::string::npos) << "nor in the chart of staleness";
}

TEST(CompareTables, SayWhatRunsCostIfAPriceIsKnown) {
  std::vector<RunResult> results = {result_of("bsp", "clean", 10, 0.8)};
  results[0].worker_seconds = 7200;
  const std::vector<CompareRow> rows = compare_rows(results, {"bsp"}, {"clean"});
  EXPECT_EQ(compare_table(rows, {}).find("cost"), std::string::npos);
  const std::string table = compare_table(rows, {.spot = 0.3, .on_demand = 1});
  EXPECT_NE(table.find("cost, spot  cost, on demand"), std::string::npos) << table;
  EXPECT_NE(table.find("2.000       0.600            2.000"), std::string::npos) << table;
}

TEST(ComparePage, HasChartsOfEveryConditionAndTheCommand) {
  const std::vector<RunResult> results = {result_of("bsp", "clean", 10, 0.8),
                                          result_of("bsp", "kill", 12, 0.8)};
  const std::string page =
      compare_page(results, {"bsp"}, {"clean", "kill"}, {}, "mayfly compare --seeds 3");
  for (const char* text :
       {"Test accuracy, clean", "Test accuracy, kill", "Training loss, clean", "Staleness, kill",
        "Training speed", "Bytes moved", "From a loss to the next step", "mayfly compare --seeds 3",
        "condition  variant"}) {
    EXPECT_NE(page.find(text), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace mayfly::engine
