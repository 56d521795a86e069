#include "engine/compare/run_result.hpp"

#include <gtest/gtest.h>

#include "base/file.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

TEST(ShardAccounts, AreReadFromTheirWords) {
  const Result<ShardAccount> account = parse_shard_account(
      "shard 1: 40 updates, 12 slices committed, 3 repeats, 2 late, 5 leased again, 0 mixed, 7 at "
      "once, 1 probes, 1000 bytes in, 2000 bytes out, staleness 0:12 3:1 17:2");
  ASSERT_TRUE(account.ok());
  EXPECT_EQ(account.value().numbers.at("leased again"), 5U);
  EXPECT_EQ(account.value().numbers.at("at once"), 7U);
  EXPECT_EQ(account.value().numbers.at("bytes out"), 2000U);
  EXPECT_EQ(account.value().staleness,
            (std::map<std::uint64_t, std::uint64_t>{{0, 12}, {3, 1}, {17, 2}}));
  EXPECT_TRUE(parse_shard_account("shard 0: 1 updates, staleness none").value().staleness.empty());
  for (const char* text :
       {"", "shard 0", "shard 0: many updates", "shard 0: 1 updates, staleness x",
        "shard 0: 1 updates, staleness 1:", "worker 0: 1 updates"}) {
    EXPECT_FALSE(parse_shard_account(text).ok()) << text;
  }
}

TEST(RunResults, ReadBackFromTheirLine) {
  RunResult result;
  result.id = "bsp-clean-s1";
  result.variant = "bsp";
  result.condition = "clean";
  result.seed = 3;
  result.outcome = "done";
  result.detail = "a \"quoted\" word";
  result.steps = 64;
  result.samples = 4096;
  result.train_seconds = 1.5;
  result.images_per_second = 2730.25;
  result.top1 = 0.5;
  result.accuracy = {{0.5, 0.25}, {1, 0.5}};
  result.loss = {{1, 2.25}};
  result.staleness = {{0, 4}, {3, 9}};
  result.bytes = 12345;
  result.bytes_counted = true;
  result.recoveries_ms = {12.5};
  result.reissued = 2;
  result.at_once = 8;
  result.stragglers = {"worker 2 is one"};
  const Result<RunResult> read = parse_run_result(to_json(result));
  ASSERT_TRUE(read.ok()) << read.error().detail;
  EXPECT_EQ(to_json(read.value()), to_json(result));
  EXPECT_FALSE(parse_run_result("{}").ok());
  EXPECT_FALSE(parse_run_result("not a result").ok());
}

TEST(RunResults, AreReadFromARunDirectory) {
  const mayfly::test_support::TemporaryFolder folder;
  const std::string dir = folder.path();
  const auto write = [&](const std::string& name, std::string_view text) {
    ASSERT_TRUE(write_file_atomic(dir + "/" + name, text).ok());
  };
  write("summary.json", R"({"outcome":"done","detail":"","steps":2,"samples":32,"test_top1":0.75,)"
                        R"("train_seconds":2.0,"images_per_second":16})");
  write("events.jsonl",
        "{\"time\":100.0,\"kind\":\"view\",\"members\":[1]}\n"
        "{\"time\":103.5,\"kind\":\"evaluation\",\"step\":2,\"test_top1\":0.75,\"test_loss\":1}\n"
        "{\"time\":104,\"kind\":\"straggler\",\"detail\":\"worker 2\"}\n"
        "{\"time\":104,\"kind\":\"recovery\",\"recovery\":{\"cause\":\"lost\",\"step_ms\":41.5}}\n"
        "{\"time\":104,\"kind\":\"recovery\",\"recovery\":{\"cause\":\"join\",\"step_ms\":9}}\n"
        "{\"time\":105,\"kind\":\"shard_done\",\"detail\":\"shard 0: 2 updates, 4 at once, 10 "
        "bytes in, 20 bytes out, staleness 1:2\"}\n"
        "{\"time\":105,\"kind\":\"shard_done\",\"detail\":\"shard 1: 2 updates, 4 at once, 10 "
        "bytes in, 20 bytes out, staleness 1:2\"}\n");
  write("metrics.jsonl",
        "{\"samples\":16,\"images_per_second\":0,\"loss\":2,\"members\":2}\n"
        "{\"samples\":16,\"images_per_second\":8,\"loss\":1,\"members\":2}\n");
  const Result<RunResult> result = read_run_result(dir);
  ASSERT_TRUE(result.ok()) << result.error().detail;
  EXPECT_EQ(result.value().accuracy, (std::vector<std::pair<double, double>>{{3.5, 0.75}}));
  EXPECT_EQ(result.value().loss, (std::vector<std::pair<double, double>>{{0, 2}, {2, 1}}));
  EXPECT_EQ(result.value().staleness.at(1), 4U);
  EXPECT_EQ(result.value().bytes, 60);
  EXPECT_EQ(result.value().at_once, 4U);
  EXPECT_EQ(result.value().recoveries_ms, std::vector<double>{41.5});
  EXPECT_EQ(result.value().stragglers.size(), 1U);
  EXPECT_FALSE(read_run_result(dir + "/nowhere").ok());
}

TEST(AllReduceBytes, AreTwiceThePartsThatTheOthersHave) {
  EXPECT_EQ(all_reduce_bytes(100, 1), 0);
  EXPECT_EQ(all_reduce_bytes(100, 2), 800);
  EXPECT_EQ(all_reduce_bytes(100, 4), 2400);
}

}  // namespace
}  // namespace mayfly::engine
