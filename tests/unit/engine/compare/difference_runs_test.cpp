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
    names += cell.name;
    const bool alone = cell.name == "A" || cell.name == "B";
    EXPECT_EQ(cell.jobs, cell.name == "B" ? 4U : 1U) << cell.name;
    EXPECT_EQ(value_in(cell, "workers"), alone ? "1" : "4") << cell.name;
    EXPECT_EQ(value_in(cell, "global_batch"), alone ? "16" : "64") << cell.name;
    EXPECT_EQ(value_in(cell, "threads"), "2");
    EXPECT_EQ(value_in(cell, "reuse_images"), alone || cell.name == "C" ? "true" : "false");
    EXPECT_EQ(cell.is_cold, cell.name == "E");
  }
  EXPECT_EQ(names, "ABCED") << "D reads what E has brought into the page cache";
}

TEST(DifferenceRuns, AnInjectedEffectHoldsWhereItsPartIsNotLeftOut) {
  const auto cells = difference_cells(
      options_of("delay=5ms;slow=2x;slow=3x,worker=1;fetch=2ms;storage=20MB/s;prep=4ms,worker=2"));
  ASSERT_TRUE(cells.ok());
  for (const DifferenceCell& cell : cells.value()) {
    const std::string left = value_in(cell, "inject");
    const char name = cell.name.front();
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
  EXPECT_NE(complaint_about(options).find("two workers or more"), std::string::npos);
  options.job.workers = 3;
  EXPECT_NE(complaint_about(options).find("global batch 64"), std::string::npos);
  options = options_of("");
  options.job.sync = "bsp";
  EXPECT_NE(complaint_about(options).find("all-reduce"), std::string::npos);
  options = options_of("");
  options.job.resume = "runs/a";
  EXPECT_NE(complaint_about(options).find("begins anew"), std::string::npos);
}

}  // namespace
}  // namespace mayfly::engine
