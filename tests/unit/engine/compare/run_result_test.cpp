#include "engine/compare/run_set.hpp"

#include <gtest/gtest.h>

#include "base/file.hpp"
#include "engine/run/member_record.hpp"
#include "engine/run/record_json.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

TEST(RunResults, ReadBackFromTheirLine) {
  RunResult result;
  result.id = "bsp-clean-s1";
  result.variant = "bsp";
  result.condition = "clean";
  result.seed = 3;
  result.outcome = elastic::Outcome::kDone;
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
  result.worker_seconds = 40.5;
  result.redone_samples = 96;
  result.leased_again = 2;
  result.at_once = 8;
  result.stragglers = {"worker 2 is one"};
  const Result<RunResult> read = parse_run_result(to_json(result));
  ASSERT_TRUE(read.ok()) << read.error().detail;
  EXPECT_EQ(to_json(read.value()), to_json(result));
  EXPECT_FALSE(parse_run_result("{}").ok());
  EXPECT_FALSE(parse_run_result("not a result").ok());
}

/// Records of members 1 to 3; member n joins at second n.
std::string lives_of_three() {
  std::string members;
  for (const auto& [t, number] :
       {std::pair(1.0, 1U), {2.0, 2U}, {3.0, 3U}, {31.0, 1U}, {11.5, 2U}, {31.0, 3U}}) {
    MemberRecord member;
    member.t = t;
    member.member = number;
    member.joined = number;
    members += json_text(object_of(member)) + "\n";
  }
  return members;
}

TEST(RunResults, AreReadFromARunDirectory) {
  const mayfly::test_support::TemporaryFolder folder;
  const std::string dir = folder.path();
  const auto write = [&](const std::string& name, std::string_view text) {
    ASSERT_TRUE(write_file_atomic(dir + "/" + name, text).ok());
  };
  Summary summary;
  summary.outcome = elastic::Outcome::kDone;
  summary.test_top1 = 0.75;
  summary.undone_samples = 5;
  write("summary.json", json_text(object_of(summary)));
  std::string events = R"({"time":100.0,"kind":"view","members":[1]})"
                       "\n";
  const auto add = [&events](double time, const char* kind, const json::object& fields) {
    json::object event{{"time", time}, {"kind", kind}};
    event.insert(fields.begin(), fields.end());
    events += json_text(event) + "\n";
  };
  RecoveryEvent recovery;
  recovery.recovery.cause = elastic::ChangeCause::kLost;
  recovery.recovery.step_ms = 41.5;
  recovery.recovery.redone_microbatches = 3;
  ShardRecord shard;
  shard.at_once = 4;
  shard.leased_again = 2;
  shard.bytes_in = 10;
  shard.bytes_out = 20;
  shard.staleness = {{1, 2}};
  add(103.5, EvaluationRecord::kKind, object_of(EvaluationRecord{2, 0.75, 1}));
  add(104, "straggler", object_of(NoteRecord{"straggler", "worker 2"}));
  add(104, RecoveryEvent::kKind, object_of(recovery));
  recovery.recovery.cause = elastic::ChangeCause::kJoin;
  recovery.recovery.redone_microbatches = 0;
  add(104, RecoveryEvent::kKind, object_of(recovery));
  add(105, ShardRecord::kKind, object_of(shard));
  add(105, ShardRecord::kKind, object_of(shard));
  json::object servers{{"time", 100.0}, {"kind", "ps_servers"}};
  servers["servers"] = json::array{json::object{{"member", 2}, {"computes", true}},
                                   json::object{{"member", 3}, {"computes", false}}};
  events += json_text(servers) + "\n";
  write("events.jsonl", events);
  StepRecord step;
  step.samples = 16;
  step.loss = 2;
  step.members = 2;
  const std::string first = json_text(object_of(step));
  step.images_per_second = 8;
  step.loss = 1;
  write("metrics.jsonl", first + "\n" + json_text(object_of(step)) + "\n");
  write("members.jsonl", lives_of_three());
  const Result<RunResult> result = read_run_result(dir, {.microbatch = 8, .slice = 32});
  ASSERT_TRUE(result.ok()) << result.error().detail;
  EXPECT_EQ(result.value().accuracy, (std::vector<std::pair<double, double>>{{3.5, 0.75}}));
  EXPECT_EQ(result.value().loss, (std::vector<std::pair<double, double>>{{0, 2}, {2, 1}}));
  EXPECT_EQ(result.value().staleness.at(1), 4U);
  EXPECT_EQ(result.value().bytes, 60);
  EXPECT_EQ(result.value().at_once, 4U);
  EXPECT_EQ(result.value().recoveries_ms, std::vector<double>{41.5});
  EXPECT_EQ(result.value().stragglers.size(), 1U);
  EXPECT_EQ(result.value().worker_seconds, 30 + 9.5);
  EXPECT_EQ(result.value().redone_samples, 5 + 3 * 8 + 2 * 32U);
  EXPECT_FALSE(read_run_result(dir + "/nowhere", {}).ok());
}

TEST(AllReduceBytes, AreTwiceThePartsThatTheOthersHave) {
  EXPECT_EQ(all_reduce_bytes(400, 1), 0);
  EXPECT_EQ(all_reduce_bytes(400, 2), 800);
  EXPECT_EQ(all_reduce_bytes(400, 4), 2400);
}

}  // namespace
}  // namespace mayfly::engine
