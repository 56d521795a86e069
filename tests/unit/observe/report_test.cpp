#include "observe/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/observe/run_folder.hpp"

namespace mayfly::observe {
namespace {

TEST(RunFollower, ReadsWholeLinesAsTheyCome) {
  const RunFolder folder;
  const auto run = RunFollower::open(folder.path());
  ASSERT_TRUE(run.ok());
  EXPECT_FALSE(run.value()->poll());
  const std::string line = step_line(1, 1);
  folder.add("metrics.jsonl", line.substr(0, 30));
  EXPECT_FALSE(run.value()->poll());  // the line is not complete
  folder.add("metrics.jsonl", line.substr(30) + "\n");
  EXPECT_TRUE(run.value()->poll());
  EXPECT_EQ(run.value()->fold().kept().rows(), 1U);
  EXPECT_FALSE(run.value()->take_begun_anew());
}

TEST(RunFollower, ReadsTheFactsOfAProgram) {
  const RunFolder folder;
  folder.add("config.toml", "global_batch = 128\n");
  const auto run = RunFollower::open(folder.path());
  ASSERT_TRUE(run.ok());
  (void)run.value()->take_read_settings();
  folder.add("facts.json", R"({"data": "x", "program": {"steps": 7, "global_batch": 32}})");
  EXPECT_TRUE(run.value()->poll());
  EXPECT_TRUE(run.value()->take_read_settings());
  EXPECT_THAT(run.value()->fold().state_json("run"), testing::HasSubstr(R"("global_batch":"32")"));
}

TEST(RunFollower, BeginsAnewWithOtherFiles) {
  const RunFolder folder;
  folder.add_steps(1, 5);
  const auto run = RunFollower::open(folder.path());
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run.value()->fold().kept().rows(), 5U);
  std::filesystem::resize_file(folder.path() + "/metrics.jsonl", 0);
  folder.add_steps(1, 2);
  EXPECT_TRUE(run.value()->poll());
  EXPECT_TRUE(run.value()->take_begun_anew());
  EXPECT_EQ(run.value()->fold().kept().rows(), 2U);
}

TEST(RunFollower, RunsOfOneNameAreToldApart) {
  const RunFolder first;
  const RunFolder second;
  std::vector<std::unique_ptr<RunFollower>> runs;
  for (const RunFolder* folder : {&first, &second}) {
    const std::string path = folder->path() + "/run";
    std::filesystem::create_directory(path);
    std::filesystem::copy(folder->path() + "/events.jsonl", path + "/events.jsonl");
    runs.push_back(RunFollower::open(path).value());
  }
  runs.push_back(RunFollower::open(first.path()).value());
  const std::string other = runs.back()->name();
  EXPECT_EQ(runs[0]->name(), "run");
  ASSERT_TRUE(name_apart(runs).ok());
  EXPECT_EQ(runs[0]->name(), other + "/run");
  EXPECT_THAT(runs[1]->name(), testing::EndsWith("/run"));
  EXPECT_NE(runs[1]->name(), runs[0]->name());
  EXPECT_EQ(runs[2]->name(), other);
  runs.push_back(RunFollower::open(first.path() + "/.").value());
  EXPECT_THAT(name_apart(runs).error().detail, testing::HasSubstr("given twice"));
}

TEST(RunFollower, RefusesWhatIsNoRunDirectory) {
  EXPECT_THAT(RunFollower::open("/nowhere/at-all").error().detail,
              testing::HasSubstr("no run directory /nowhere/at-all"));
  const RunFolder folder;
  std::filesystem::resize_file(folder.path() + "/events.jsonl", 0);
  folder.add("events.jsonl", "{\"name\": \"of something else\"}\n");
  EXPECT_THAT(RunFollower::open(folder.path()).error().detail,
              testing::HasSubstr("no records of a run"));
  std::filesystem::remove(folder.path() + "/events.jsonl");
  EXPECT_THAT(RunFollower::open(folder.path()).error().detail,
              testing::HasSubstr("has no events.jsonl"));
}

TEST(Report, HoldsItsNumbersAndNoTagsOfOthers) {
  const RunFolder folder;
  folder.add_steps(1, 100);
  folder.add("events.jsonl",
             event_line(1, "connected",
                        "\"member\": 1, \"detail\": \"</script><script>alert(1)</script>\"") +
                 "\n");
  const auto run = RunFollower::open(folder.path());
  ASSERT_TRUE(run.ok());
  const std::string page = report_of({run.value().get()}, 1.7e9);
  EXPECT_THAT(page, testing::HasSubstr("script-src 'sha256-"));
  EXPECT_THAT(page, testing::HasSubstr("\\u003c/script>\\u003cscript>alert(1)"));
  EXPECT_THAT(page, testing::Not(testing::HasSubstr("<script>alert")));
  EXPECT_THAT(page, testing::HasSubstr("\"level\":0,\"count\":100,"));
}

TEST(Report, OfManyStepsIsSmall) {
  const RunFolder folder;
  folder.add_steps(1, 100'000);
  const auto run = RunFollower::open(folder.path());
  ASSERT_TRUE(run.ok());
  EXPECT_LT(report_of({run.value().get()}, 1.7e9).size(), 5'000'000U);
}

}  // namespace
}  // namespace mayfly::observe
