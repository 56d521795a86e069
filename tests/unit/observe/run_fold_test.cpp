#include "observe/core/run_fold.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <map>

#include "tests/unit/observe/run_text.hpp"

namespace mayfly::observe {
namespace {

namespace json = boost::json;

/// A job of 40 steps with two members, one of which is lost after step 20.
void feed_job(Feed& feed, bool events_first) {
  begin(feed);
  feed.event(event_line(0.5, "connected", "\"member\": 1, \"detail\": \"a\""));
  feed.event(event_line(0.5, "connected", "\"member\": 2, \"detail\": \"b\""));
  feed.event(event_line(0.8, "joined", "\"member\": 1, \"detail\": \"a\""));
  feed.event(event_line(1.0, "view", view_more(0, "[1, 2]")));
  if (!events_first) {
    feed.steps(1, 20);
  }
  feed.event(event_line(21.5, "lost", "\"member\": 2, \"detail\": \"it died\""));
  feed.event(event_line(21.6, "view", view_more(20, "[1]", "[\"a\"]")));
  feed.event(event_line(22.5, "recovery", recovery_more(20, "2", 21.5, 1000)));
  if (!events_first) {
    feed.steps(21, 30);
  }
  feed.event(
      event_line(31.0, "evaluation", "\"step\": 30, \"test_top1\": 0.25, \"test_loss\": 2.5"));
  if (!events_first) {
    feed.steps(31, 40);
  } else {
    feed.steps(1, 40);
  }
  feed.event(event_line(43.0, "worker_done", "\"steps\": 40"));
  feed.fold.summary("{\"outcome\": \"done\", \"steps\": 40}");
}

json::object state_of(const RunFold& fold) {
  return json::parse(fold.state_json("run")).as_object();
}

TEST(RunFold, OrderAndPiecesOfTheFilesDoNotMatter) {
  Feed mixed;
  feed_job(mixed, false);
  Feed apart;
  feed_job(apart, true);
  EXPECT_EQ(mixed.fold.state_json("run"), apart.fold.state_json("run"));
  EXPECT_EQ(mixed.fold.kept().pack(0, 0, 40), apart.fold.kept().pack(0, 0, 40));
}

TEST(RunFold, LiveIsAsAfterwards) {
  Feed live;
  begin(live);
  live.event(event_line(1.0, "view", view_more(0, "[1, 2]")));
  for (int i = 1; i <= 20; ++i) {
    live.step(step_line(i, 1 + i));
  }
  live.event(event_line(22.5, "recovery", recovery_more(20, "2", 21.5, 1000)));
  live.steps(21, 25);
  Feed later;
  begin(later);
  later.event(event_line(1.0, "view", view_more(0, "[1, 2]")));
  later.steps(1, 25);
  later.event(event_line(22.5, "recovery", recovery_more(20, "2", 21.5, 1000)));
  EXPECT_EQ(live.fold.state_json("run"), later.fold.state_json("run"));
  EXPECT_EQ(live.fold.kept().pack(0, 0, 25), later.fold.kept().pack(0, 0, 25));
}

TEST(RunFold, TimesOfRecordsAreTaken) {
  Feed feed;
  begin(feed);
  std::string view = event_line(1, "view", view_more(0, "[1]"));
  view.replace(view.find("1700000001"), 10, "1700000500");  // the clock was set
  feed.event(view);
  for (int i = 1; i <= 5; ++i) {
    feed.step(step_line(i, 1 + 0.5 * i));
  }
  EXPECT_DOUBLE_EQ(feed.fold.kept().time(4), 3.5);
  EXPECT_DOUBLE_EQ(feed.fold.end(), 3.5);
  feed.step(step_line(6, 4.25));
  EXPECT_DOUBLE_EQ(feed.fold.kept().time(5), 4.25);
}

TEST(RunFold, InstantsPausesAndMoneyOfRecordsAreTaken) {
  Feed feed;
  begin(feed);
  feed.event(event_line(0.5, "connected",
                        R"("member": 1, "detail": "a", "spent": 0, "per_hour": 36, "billing": 1)"));
  feed.event(event_line(1, "view",
                        view_more(0, "[1]") + R"(, "spent": 0.005, "per_hour": 36, "billing": 1)"));
  feed.step(step_line(1, 2));
  feed.event(event_line(3, "recovery", recovery_more(1, "2", 2.25, 500)));  // written a while later
  feed.step(step_line(2, 2.75));
  feed.step(step_line(3, 4, R"("checkpoint_ms": 125)"));
  feed.event(
      event_line(6, "evaluation", R"("step": 3, "test_top1": 0.5, "test_loss": 1, "ms": 1500)"));
  ASSERT_EQ(feed.fold.recoveries().size(), 1U);
  EXPECT_DOUBLE_EQ(feed.fold.recoveries()[0].detected, 2.25);
  EXPECT_DOUBLE_EQ(feed.fold.recoveries()[0].step, 2.75);
  std::map<std::string, double> time;
  double sum = 0;
  for (const TimeShare& share : feed.fold.time_shares()) {
    time[share.kind] = share.seconds;
    sum += share.seconds;
  }
  EXPECT_DOUBLE_EQ(time["evaluation"], 1.5);
  EXPECT_DOUBLE_EQ(time["checkpoint"], 0.125);
  EXPECT_DOUBLE_EQ(time["recovery"], 0.5);
  EXPECT_DOUBLE_EQ(sum, 6);
  ASSERT_EQ(feed.fold.servers().points().size(), 2U);
  EXPECT_DOUBLE_EQ(feed.fold.servers().points()[1].spent, 0.005);
  // Five seconds at 36 per hour, after the last record of costs.
  const json::object head = state_of(feed.fold).at("head").as_object();
  EXPECT_DOUBLE_EQ(head.at("spent").to_number<double>(), 0.055);
}

TEST(RunFold, NothingIsSpentWhileTheJobDoesNotRun) {
  Feed feed;
  begin(feed);
  feed.event(
      event_line(0, "connected", R"("member": 1, "spent": 0, "per_hour": 36, "billing": 1)"));
  feed.event(event_line(100, "cost", R"("spent": 1, "per_hour": 36, "billing": 1)"));
  EXPECT_NEAR(feed.fold.servers().spent(150), 1.5, 1e-6);
  begin(feed, 7300);  // the coordinator was killed and restarted
  EXPECT_NEAR(feed.fold.servers().spent(7300), 1, 1e-6);
  feed.event(
      event_line(7301, "connected", R"("member": 1, "spent": 1, "per_hour": 36, "billing": 1)"));
  EXPECT_NEAR(feed.fold.servers().spent(7401), 2, 1e-6);
}

TEST(RunFold, SpeedsBelongToTheMemberOfTheirTime) {
  Feed feed;
  const auto line = [](double t, double ms, int steps) {
    return "{\"t\": " + std::to_string(t) +
           ", \"member\": 1, \"host\": \"a\", \"phase\": \"active\", "
           "\"joined\": 0, \"microbatches\": 4, \"microbatch_ms\": " +
           std::to_string(ms) + ", \"steps\": " + std::to_string(steps) + ", \"samples\": 10}";
  };
  feed.fold.member(line(2, 10, 0), 0);  // it is read before the events of its time
  begin(feed);
  feed.event(event_line(1, "connected", "\"member\": 1, \"detail\": \"a\""));
  feed.fold.member(line(20, 15, 7), 100);
  feed.event(event_line(20, "lost", "\"member\": 1, \"detail\": \"it died\""));
  begin(feed, 100);
  feed.event(event_line(101, "connected", "\"member\": 1, \"detail\": \"b\""));
  feed.fold.member(line(105, 30, 1), 200);
  feed.fold.member("not a record", 300);
  const json::object state = state_of(feed.fold);
  const json::array& members = state.at("members").as_array();
  ASSERT_EQ(members.size(), 2U);
  EXPECT_EQ(members[0].at("speeds").as_array().size(), 2U);
  EXPECT_EQ(members[0].at("steps").to_number<int>(), 7);
  EXPECT_EQ(members[1].at("speeds").as_array().size(), 1U);
  EXPECT_EQ(members[1].at("speeds").at(0).at(1).to_number<double>(), 30);
  EXPECT_EQ(state.at("damaged").at("lines").to_number<int>(), 1);
}

TEST(RunFold, StepsThatAreDoneAgainAreUndoneAndNoZigzag) {
  Feed feed;
  begin(feed);
  feed.event(event_line(1, "view", view_more(0, "[1, 2]")));
  feed.steps(1, 30);
  feed.event(
      event_line(32, "fell_back", "\"step\": 20, \"undone_steps\": 10, \"detail\": \"diverged\""));
  feed.steps(21, 50, "", 13);
  const RunFold& fold = feed.fold;
  ASSERT_EQ(fold.kept().rows(), 50U);
  ASSERT_EQ(fold.undone().rows(), 10U);
  EXPECT_EQ(fold.undone().step(0), 21U);
  for (std::size_t i = 1; i < 50; ++i) {
    EXPECT_EQ(fold.kept().step(i), i + 1);
    EXPECT_GE(fold.kept().time(i), fold.kept().time(i - 1));
  }
  EXPECT_LT(fold.undone().time(9), fold.kept().time(20));
}

TEST(RunFold, StepsThatAreNotRecordedAgainAreUndoneTime) {
  Feed feed;
  begin(feed);
  feed.steps(1, 20, "", 0);
  feed.event(
      event_line(30, "restarted", R"("step": 10, "undone_steps": 10, "detail": "all lost")"));
  feed.event(event_line(30, "view", view_more(10, "[1]")));
  feed.event(event_line(36, "checkpoint", R"("step": 16)"));
  const auto undone = [&feed] {
    for (const TimeShare& share : feed.fold.time_shares()) {
      if (share.kind == "undone") {
        return share.seconds;
      }
    }
    return -1.0;
  };
  EXPECT_DOUBLE_EQ(undone(), 6) << "so far";
  feed.steps(21, 22, "", 24);
  EXPECT_DOUBLE_EQ(undone(), 14) << "until the first new step began";
  EXPECT_EQ(feed.fold.phase(), "running");
}

TEST(RunFold, AResumedJobGoesOn) {
  Feed feed;
  begin(feed);
  feed.event(event_line(1, "view", view_more(0, "[1]", "[\"a\"]")));
  feed.steps(1, 30);
  begin(feed, 100);
  feed.event(event_line(101, "view", view_more(20, "[1]", "[\"a\"]")));
  feed.steps(21, 40, "", 81);
  EXPECT_EQ(feed.fold.kept().rows(), 40U);
  EXPECT_EQ(feed.fold.undone().rows(), 10U);
  EXPECT_GT(feed.fold.kept().time(20), 101.0);
  EXPECT_LT(feed.fold.kept().time(19), 31.0);
  EXPECT_LT(feed.fold.undone().time(9), 100.0);
  EXPECT_EQ(feed.fold.members().lanes().size(), 2U);  // ids start from 1 again
  EXPECT_EQ(feed.fold.members().lanes()[0].end, "ended");
  const std::vector<JobSpan> spans = feed.fold.spans();
  ASSERT_EQ(spans.size(), 3U);
  EXPECT_EQ(spans[1].kind, "not_running");
  EXPECT_NEAR(spans[1].from, 31, 1e-3);
  EXPECT_NEAR(*spans[1].to, 100, 1e-3);
}

TEST(RunFold, ARestartedCoordinatorIsASpan) {
  Feed feed;
  begin(feed);
  feed.event(event_line(1, "view", view_more(0, "[1]", "[\"a\"]")));
  feed.steps(1, 9);
  feed.event(event_line(20, "coordinator_restarted", "\"detail\": \"resuming\""));
  feed.steps(10, 12);
  const std::vector<JobSpan> spans = feed.fold.spans();
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[1].kind, "no_coordinator");
  EXPECT_EQ(feed.fold.kept().rows(), 12U);
  for (const TimeShare& share : feed.fold.time_shares()) {
    EXPECT_TRUE(share.kind != "no_coordinator" || share.seconds == 0);  // training continued
  }
}

TEST(RunFold, ALateRecordIsPutInItsPlace) {
  Feed feed;
  begin(feed);
  feed.steps(1, 4);
  feed.steps(6, 8);
  feed.step(step_line(5, 6));
  ASSERT_EQ(feed.fold.kept().rows(), 8U);
  EXPECT_EQ(feed.fold.undone().rows(), 0U);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(feed.fold.kept().step(i), i + 1);
    EXPECT_DOUBLE_EQ(feed.fold.kept().time(i), 2.0 + static_cast<double>(i));
  }
}

TEST(RunFold, MembersHaveLanes) {
  Feed feed;
  feed_job(feed, true);
  const std::vector<MemberLane>& lanes = feed.fold.members().lanes();
  ASSERT_EQ(lanes.size(), 2U);
  EXPECT_EQ(lanes[0].host, "a");
  ASSERT_EQ(lanes[0].spans.size(), 3U);
  EXPECT_EQ(lanes[0].spans[0].phase, MemberPhase::kLoading);
  EXPECT_EQ(lanes[0].spans[1].phase, MemberPhase::kReady);
  EXPECT_EQ(lanes[0].spans[2].phase, MemberPhase::kActive);
  EXPECT_FALSE(lanes[0].spans[2].to.has_value());
  EXPECT_EQ(lanes[1].end, "lost");
  EXPECT_EQ(lanes[1].detail, "it died");
  EXPECT_EQ(lanes[1].end_step, 20U);
  EXPECT_NEAR(lanes[1].end_t, 21.5, 1e-5);
}

TEST(RunFold, AMemberThatJoinsAgainHasALaneFromThenOn) {
  Feed feed;
  begin(feed);
  const std::string member = R"("member": 1, "detail": "a")";
  feed.event(event_line(1, "connected", member));
  feed.event(event_line(1.5, "returned", member));
  feed.event(event_line(2, "evicted", R"("member": 1, "detail": "cut off")"));
  feed.event(event_line(5, "joins_again", member));
  feed.event(event_line(9, "view", view_more(3, "[1]", R"(["a"])")));
  const std::vector<MemberLane>& lanes = feed.fold.members().lanes();
  ASSERT_EQ(lanes.size(), 2U);
  EXPECT_EQ(lanes[0].end, "evicted");
  EXPECT_NEAR(lanes[1].spans.front().from, 5, 1e-5);
  EXPECT_EQ(lanes[1].host, "a");
}

TEST(RunFold, ARecoveryBeginsBeforeItsRecord) {
  Feed feed;
  feed_job(feed, true);
  ASSERT_EQ(feed.fold.recoveries().size(), 1U);
  const RecoveryFact& recovery = feed.fold.recoveries()[0];
  EXPECT_NEAR(recovery.detected, 21.5, 1e-5);
  EXPECT_NEAR(recovery.formed, 21.52, 1e-5);
  EXPECT_NEAR(recovery.step, 22.5, 1e-5);
}

TEST(RunFold, TheKindsOfTimeAddUpToTheWallTime) {
  Feed feed;
  feed_job(feed, true);
  double sum = 0;
  std::map<std::string, double> seconds;
  for (const TimeShare& share : feed.fold.time_shares()) {
    EXPECT_GE(share.seconds, 0);
    sum += share.seconds;
    seconds[share.kind] = share.seconds;
  }
  EXPECT_NEAR(sum, 43.0, 1e-6);
  EXPECT_NEAR(seconds["recovery"], 1.0, 1e-5);
  EXPECT_NEAR(seconds["start"], 2.0, 1e-5);
  EXPECT_NEAR(seconds["data"], 4.0, 1e-5);
}

TEST(RunFold, LinesThatAreNoRecordsAreCounted) {
  Feed feed;
  feed.event("garbage");
  feed.event(event_line(1, "view"));  // before any start
  begin(feed);
  feed.event("[1, 2]");
  feed.event("{\"kind\": 7}");
  feed.step("{\"step\": \"one\"}");
  feed.step("{\"step\": 1}");
  feed.step(step_line(1, 2));
  feed.event(event_line(1, "view", "\"members\": [\"x\", 1e99, -4], \"hosts\": 7"));
  feed.event(event_line(2, "recovery", "\"recovery\": []"));
  const json::object state = state_of(feed.fold);
  EXPECT_EQ(state.at("damaged").at("lines").to_number<int>(), 6);
  EXPECT_EQ(state.at("damaged").at("first").as_string(), "events.jsonl at byte 0");
  EXPECT_EQ(feed.fold.kept().rows(), 1U);
}

TEST(RunFold, ServersMoneyAndWhatWasSaved) {
  Feed feed;
  feed.fold.config(
      "cloud_offers = \"p3@zone-a:spot=1.0,p3@zone-b:on_demand=4.0\"\n"
      "cloud_budget = 10\n");
  begin(feed);
  feed.event(event_line(10, "server_requested", "\"detail\": \"2 x p3 in zone-a (spot)\""));
  const std::string money = ", \"billing\": 1, \"spent\": 0.5, \"per_hour\": 1";
  feed.event(event_line(20, "server_granted",
                        "\"detail\": \"p3 in zone-a (spot)\", \"server\": \"s1\"" + money));
  feed.event(event_line(25, "server_refused",
                        "\"detail\": \"capacity: p3 in zone-a (spot): 1 of 2 to be had\""));
  feed.event(event_line(30, "server_joined", "\"server\": \"s1\""));
  feed.event(event_line(3620, "server_ended",
                        "\"detail\": \"gone\", \"server\": \"s1\", \"cost\": 1.0, \"billing\": 0, "
                        "\"spent\": 1.0, \"per_hour\": 0"));
  const std::vector<ServerLane>& lanes = feed.fold.servers().lanes();
  ASSERT_EQ(lanes.size(), 2U);
  EXPECT_NEAR(lanes[0].asked, 10, 1e-5);
  EXPECT_NEAR(*lanes[0].granted, 20, 1e-5);
  EXPECT_EQ(lanes[1].end, "refused");
  EXPECT_NEAR(lanes[1].asked, 10, 1e-5);
  const json::object head = state_of(feed.fold).at("head").as_object();
  EXPECT_DOUBLE_EQ(head.at("spent").to_number<double>(), 1.0);
  EXPECT_DOUBLE_EQ(head.at("on_demand").to_number<double>(), 4.0);
}

TEST(RunFold, ATestLossThatIsNoNumberStaysNone) {
  Feed feed;
  begin(feed);
  feed.event(event_line(5, "evaluation", "\"step\": 3, \"test_top1\": 0.1, \"test_loss\": null"));
  const json::array evaluations = state_of(feed.fold).at("evaluations").as_array();
  ASSERT_EQ(evaluations.size(), 1U);
  EXPECT_TRUE(evaluations[0].at("loss").is_null());
}

TEST(RunFold, WhatAnEvaluatorMeasuresIsAnEvaluation) {
  Feed feed;
  begin(feed);
  feed.steps(1, 9);
  feed.event(event_line(8, "evaluated",
                        "\"step\": 3, \"test_top1\": 0.25, \"test_loss\": 2, \"server\": \"e\""));
  const json::array evaluations = state_of(feed.fold).at("evaluations").as_array();
  ASSERT_EQ(evaluations.size(), 1U);
  EXPECT_EQ(evaluations[0].at("step").to_number<int>(), 3);
  EXPECT_DOUBLE_EQ(evaluations[0].at("top1").to_number<double>(), 0.25);
  EXPECT_THAT(feed.fold.pauses_of_steps(), testing::IsEmpty()) << "training did not wait";
}

TEST(RunFold, OnlyListedSettingsAreShown) {
  Feed feed;
  feed.fold.config(
      "model = \"resnet20\"\ncloud_options = \"password=secret\"\n"
      "cloud_worker_args = \"--x secret\"\ntoken_file = \"secret\"\n");
  begin(feed);
  const std::string state = feed.fold.state_json("run");
  EXPECT_THAT(state, testing::HasSubstr("resnet20"));
  EXPECT_THAT(state, testing::Not(testing::HasSubstr("secret")));
}

TEST(RunFold, AProgramSaysItsStepsAndBatch) {
  const std::string facts =
      R"({"data": "a line", "program": {"steps": 2000, "global_batch": 32, "microbatch": 4}})";
  for (const bool facts_first : {false, true}) {
    Feed feed;
    if (facts_first) {
      feed.fold.facts(facts);
    }
    feed.fold.config(
        "model = \"program\"\nepochs = 10\nsteps = 0\nglobal_batch = 128\nlr = 0.1\n"
        "data = \"procedural\"\n");
    if (!facts_first) {
      feed.fold.facts(facts);
    }
    begin(feed);
    feed.steps(1, 5);
    const json::object state = state_of(feed.fold);
    const json::object settings = state.at("settings").as_object();
    EXPECT_EQ(settings.at("global_batch").as_string(), "32");
    EXPECT_EQ(settings.at("data").as_string(), "a line");
    EXPECT_EQ(settings.at("model").as_string(), "program");
    EXPECT_FALSE(settings.contains("epochs") || settings.contains("lr"));
    EXPECT_EQ(state.at("head").at("total").to_number<int>(), 2000);
  }
  RunFold fold;
  fold.config("epochs = 10\n");
  fold.facts(R"({"data": "procedural", "classes": 10})");  // facts of Mayfly's own training
  EXPECT_THAT(fold.state_json("run"), testing::HasSubstr(R"("epochs":"10")"));
}

}  // namespace
}  // namespace mayfly::observe
