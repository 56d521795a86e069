#include "engine/compare/difference_runs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace mayfly::engine {
namespace {

DifferenceOptions options_of(const std::string& inject) {
  DifferenceOptions options;
  options.job.workers = 4;
  options.job.global_batch = 64;
  options.job.microbatch = 8;
  options.job.threads = 2;
  options.job.inject = inject;
  return options;
}

std::string value_in(const DifferenceCell& cell, const std::string& name) {
  const auto found = std::ranges::find(cell.settings, name, &SettingValue::first);
  return found == cell.settings.end() ? "not said" : found->second;
}

std::string complaint_about(const DifferenceOptions& options) {
  const auto cells = difference_cells(options);
  return cells.ok() ? "nothing" : cells.error().detail;
}

TEST(DifferenceRuns, EachWorkerHasTheSameWorkInEveryCell) {
  const auto cells = difference_cells(options_of(""));
  ASSERT_TRUE(cells.ok());
  std::string names;
  for (const DifferenceCell& cell : cells.value()) {
    const char name = static_cast<char>(cell.cell);
    names += name;
    const bool alone = name == 'A' || name == 'B';
    EXPECT_EQ(cell.jobs, name == 'B' ? 4U : 1U) << name;
    EXPECT_EQ(value_in(cell, "workers"), alone ? "1" : "4") << name;
    EXPECT_EQ(value_in(cell, "global_batch"), alone ? "16" : "64") << name;
    EXPECT_EQ(value_in(cell, "threads"), "2");
    EXPECT_EQ(value_in(cell, "reuse_images"), alone || name == 'C' ? "true" : "false");
    EXPECT_EQ(value_in(cell, "hosts"), "not said");
    EXPECT_EQ(value_in(cell, "checkpoint_to"), "") << "these checkpoints are nobody's";
    EXPECT_EQ(value_in(cell, "evaluators"), "0");
    EXPECT_EQ(value_in(cell, "port"), "0") << "several jobs run at once";
    EXPECT_EQ(cell.is_cold, name == 'E');
  }
  EXPECT_EQ(names, "ABCED") << "D reads what E has brought into the page cache";
}

TEST(DifferenceRuns, OverHostsOneHostComputesWhatIsNotOfTheNetwork) {
  DifferenceOptions options = options_of("");
  options.job.hosts = "u@a:2,b:2";
  options.one_host = "u@a";
  const auto cells = difference_cells(options);
  ASSERT_TRUE(cells.ok());
  std::string names;
  for (const DifferenceCell& cell : cells.value()) {
    const char name = static_cast<char>(cell.cell);
    names += name;
    EXPECT_EQ(value_in(cell, "hosts"), name == 'C'                  ? "u@a:4"
                                       : name == 'A' || name == 'B' ? "u@a:1"
                                                                    : "not said")
        << name;
    EXPECT_EQ(value_in(cell, "reuse_images"), name == 'E' ? "false" : "true") << name;
    EXPECT_FALSE(cell.is_cold) << "other hosts keep what is in their page caches";
  }
  EXPECT_EQ(names, "ABCNE");
  options.job.threads = 0;
  EXPECT_NE(complaint_about(options).find("number of threads per worker"), std::string::npos);
}

TEST(DifferenceRuns, AnInjectedEffectHoldsWhereItsPartIsNotLeftOut) {
  const auto cells = difference_cells(
      options_of("delay=5ms;slow=2x;slow=3x,worker=1;fetch=2ms;storage=20MB/s;prep=4ms,worker=2"));
  ASSERT_TRUE(cells.ok());
  for (const DifferenceCell& cell : cells.value()) {
    const std::string left = value_in(cell, "inject");
    const char name = static_cast<char>(cell.cell);
    EXPECT_EQ(left, name == 'E'   ? "delay=5ms;slow=2x;slow=3x,worker=1;fetch=2ms;storage=20MB/s;"
                                    "prep=4ms,worker=2"
                    : name == 'D' ? "delay=5ms;slow=2x;slow=3x,worker=1;prep=4ms,worker=2"
                    : name == 'C' ? "delay=5ms;slow=2x;slow=3x,worker=1"
                                  : "slow=2x")
        << name;
  }
}

TEST(DifferenceRuns, AJobThatCannotBeDividedIsRefusedInOneLine) {
  EXPECT_EQ(complaint_about(options_of("")), "nothing");
  DifferenceOptions options = options_of("");
  options.job.workers = 1;
  EXPECT_NE(complaint_about(options).find("at least two workers"), std::string::npos);
  options.job.workers = 3;
  EXPECT_NE(complaint_about(options).find("global batch 64"), std::string::npos);
  options = options_of("");
  options.job.sync = "bsp";
  EXPECT_NE(complaint_about(options).find("all-reduce"), std::string::npos);
  options = options_of("");
  options.job.resume = "runs/a";
  EXPECT_NE(complaint_about(options).find("must not be resumed"), std::string::npos);
}

}  // namespace
}  // namespace mayfly::engine
