#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cli/operator_commands.hpp"
#include "elastic/net/job_token.hpp"
#include "tests/unit/cli/cli_fixture.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class OperatorTest : public CliTest {
 protected:
  OperatorTest() {
    EXPECT_TRUE(elastic::write_token_file(token_file_, elastic::make_token()).ok());
    std::ofstream(folder_ / "coordinator") << "127.0.0.1:4242";
  }

  const test_support::TemporaryFolder folder_;
  const std::string token_file_ = folder_ / "token";
};

TEST_F(OperatorTest, EndpointAndTokenComeFromTheRunDirectoryOrTheArguments) {
  EXPECT_EQ(run({"pause", "--run-dir", folder_.path()}), 0) << err();
  EXPECT_EQ(asked_, "127.0.0.1:4242 pause ");
  EXPECT_EQ(run({"resume", "host:7", "--token-file", token_file_}), 0) << err();
  EXPECT_EQ(asked_, "host:7 resume ");
  EXPECT_EQ(out(), "fine\n");
  EXPECT_EQ(run({"stop", "--run-dir", folder_.path(), "--json"}), 0) << err();
  EXPECT_EQ(out(), "{\"ok\": true, \"text\": \"fine\"}\n");
}

TEST_F(OperatorTest, TheTokenMayBeTheOneThatTheJobWasStartedWith) {
  const std::string elsewhere = folder_ / "copied";
  std::filesystem::rename(token_file_, elsewhere);
  EXPECT_EQ(run({"pause", folder_.path()}), 2);
  EXPECT_THAT(err(), HasSubstr("--token-file names the token"));
  std::ofstream(folder_ / "config.toml") << "token_file = \"" << elsewhere << "\"\n";
  EXPECT_EQ(run({"pause", folder_.path()}), 0) << err();
  EXPECT_EQ(asked_, "127.0.0.1:4242 pause ");
}

TEST_F(OperatorTest, ScaleAndDrainTakeANumber) {
  EXPECT_EQ(run({"scale", "--run-dir", folder_.path(), "6"}), 0) << err();
  EXPECT_EQ(asked_, "127.0.0.1:4242 scale 6");
  EXPECT_EQ(run({"drain", "host:7", "3", "--token-file", token_file_}), 0) << err();
  EXPECT_EQ(asked_, "host:7 drain 3");
  EXPECT_EQ(run({"scale", folder_.path(), "7"}), 0) << err();
  EXPECT_EQ(asked_, "127.0.0.1:4242 scale 7");
  EXPECT_EQ(run({"give-up", folder_.path(), "2"}), 0) << err();
  EXPECT_EQ(asked_, "127.0.0.1:4242 give-up 2");
  asked_.clear();
  EXPECT_EQ(run({"scale", folder_ / "nothing", "6"}), 2);
  EXPECT_THAT(err(), HasSubstr("nothing is not a run directory"));
  EXPECT_EQ(run({"scale", "--run-dir", folder_.path()}), 2);
  EXPECT_THAT(err(), HasSubstr("scale needs WORKERS"));
  EXPECT_EQ(run({"scale", "--run-dir", folder_.path(), "many"}), 2);
  EXPECT_THAT(err(), HasSubstr("expects a whole number, got 'many'"));
  EXPECT_EQ(run({"drain", "--run-dir", folder_.path(), "1", "2"}), 2);
  EXPECT_THAT(err(), HasSubstr("unexpected argument '2'"));
  EXPECT_EQ(asked_, "");
}

TEST_F(OperatorTest, ARefusalAndAnUnreachableJobAreExitCode1) {
  reply_ = elastic::CommandReply{false, "no such member"};
  EXPECT_EQ(run({"drain", "9", "--run-dir", folder_.path()}), 1);
  EXPECT_THAT(err(), HasSubstr("drain: no such member"));
  reply_ = Error{Errc::kDeadline, "127.0.0.1:4242 does not answer"};
  EXPECT_EQ(run({"status", "--run-dir", folder_.path()}), 1);
  EXPECT_THAT(err(), HasSubstr("does not answer; if the coordinator of " + folder_.path()));
  EXPECT_EQ(run({"status", "host:7", "--token-file", token_file_}), 1);
  EXPECT_THAT(
      err(),
      HasSubstr("does not answer; its coordinator has ended, or cannot be reached from here"));
}

TEST_F(OperatorTest, AJobThatIsNotThereIsExitCode2) {
  EXPECT_EQ(run({"status", "--run-dir", folder_ / "nothing"}), 2);
  EXPECT_THAT(err(), HasSubstr("no running job in"));
  std::filesystem::remove(folder_ / "coordinator");
  std::ofstream(folder_ / "summary.json") << "{}";
  EXPECT_EQ(run({"status", folder_.path()}), 2);
  EXPECT_THAT(err(), HasSubstr("has ended"));
  EXPECT_EQ(run({"status", "host:7"}), 2);
  EXPECT_THAT(err(), HasSubstr("--token-file"));
  EXPECT_EQ(run({"status", "--run-dir", folder_.path(), "--timeout", "soon"}), 2);
  EXPECT_EQ(asked_, "");
}

TEST_F(OperatorTest, StatusIsATableOrTheJsonItself) {
  reply_ = elastic::CommandReply{
      true,
      R"({"phase":"running","step":12,"members":[{"id":1,"host":"a"},{"id":10,"host":"b"}]})"};
  EXPECT_EQ(run({"status", "--run-dir", folder_.path()}), 0) << err();
  EXPECT_THAT(out(), HasSubstr("phase             running\n"));
  EXPECT_THAT(out(), HasSubstr("members\n  id host\n  1  a\n  10 b\n"));
  EXPECT_EQ(run({"status", "--run-dir", folder_.path(), "--json"}), 0);
  EXPECT_THAT(out(), HasSubstr(R"({"phase":"running")"));
}

TEST_F(OperatorTest, StatusSaysWhatIsLeftByTheRecords) {
  std::ofstream events(folder_ / "events.jsonl");
  events << R"({"time": 1000, "t": 0, "kind": "started", "metrics_bytes": 0})"
         << "\n";
  events.close();
  reply_ = elastic::CommandReply{
      true, R"({"phase":"waiting","committed":0,"total_steps":0,"members":[]})"};
  EXPECT_EQ(run({"status", folder_.path()}), 0) << err();
  EXPECT_THAT(out(), Not(HasSubstr("time_left"))) << "no program has said how many steps there are";
  reply_ = elastic::CommandReply{
      true, R"({"phase":"running","committed":40,"total_steps":100,"cost_per_hour":3600,)"
            R"("members":[{"id":1,"phase":"active"},{"id":2,"phase":"active"}]})"};
  EXPECT_EQ(run({"status", folder_.path()}), 0) << err();
  EXPECT_THAT(out(), HasSubstr("time_left         unknown: too few steps are on record yet\n"));
  std::ofstream metrics(folder_ / "metrics.jsonl");
  for (int step = 1; step <= 40; ++step) {
    metrics << R"({"step": )" << step << R"(, "t": )" << 5 + step * 2
            << R"(, "samples": 128, "epoch": 0, "loss": 1, "accuracy": 0, "learning_rate": 0.1, )"
            << R"("images_per_second": 64, "data_wait_ms": 0, "members": 2, "view": 1, )"
            << R"("sample_hash": "00"})"
            << "\n";
  }
  metrics.close();
  EXPECT_EQ(run({"status", folder_.path()}), 0) << err();
  EXPECT_THAT(out(), HasSubstr("time_left         120 s (120 to 120)\n"));
  EXPECT_THAT(out(), HasSubstr("cost_left         120 ("));
  EXPECT_THAT(out(), HasSubstr("13 parts of 3 steps with 2 members; no plan"));
  EXPECT_EQ(run({"status", folder_.path(), "--json"}), 0) << err();
  EXPECT_THAT(out(), HasSubstr(R"("remaining": {"steps": 60, "time_s": {"low": 119.)"));
  EXPECT_EQ(run({"status", folder_.path(), "--plan", folder_ / "no.plan.json"}), 2);
  EXPECT_THAT(err(), HasSubstr("no.plan.json"));
}

TEST_F(OperatorTest, StatusWatchesUntilTheJobEnds) {
  int looks = 0;
  context_.services.send_command = [&](const std::string&, ByteSpan, const elastic::Command&,
                                       Duration) -> Result<elastic::CommandReply> {
    if (++looks == 4) {
      std::ofstream(folder_ / "summary.json") << "{}";
      return Error{Errc::kIo, "nobody listens"};
    }
    return elastic::CommandReply{true, R"({"step":)" + std::to_string(looks) + "}"};
  };
  Duration paused{};
  context_.services.pause = [&](Duration each) { paused += each; };
  EXPECT_EQ(run({"status", "--run-dir", folder_.path(), "--watch", "--interval", "0.5"}), 0);
  EXPECT_THAT(out(),
              HasSubstr("step              1\n\nstep              2\n\nstep              3\n"));
  EXPECT_THAT(out(), HasSubstr("the job has ended\n"));
  EXPECT_EQ(paused, milliseconds(1500));
  looks = 0;
  EXPECT_EQ(run({"status", "--run-dir", folder_.path(), "--watch", "--interval", "never"}), 2);
}

TEST_F(OperatorTest, StatusIsNotWatchedForAReaderThatIsGone) {
  int looks = 0;
  context_.services.send_command = [&](const std::string&, ByteSpan, const elastic::Command&,
                                       Duration) -> Result<elastic::CommandReply> {
    out_.setstate(++looks == 3 ? std::ios::badbit : std::ios::goodbit);
    return elastic::CommandReply{true, R"({"step":1})"};
  };
  EXPECT_EQ(run({"status", "--run-dir", folder_.path(), "--watch"}), 1);
  EXPECT_EQ(looks, 3);
  EXPECT_EQ(err(), "");
}

TEST_F(OperatorTest, StatusWatchesOnWhileTheCoordinatorIsStartedAgain) {
  int looks = 0;
  std::vector<std::string> asked;
  context_.services.send_command = [&](const std::string& endpoint, ByteSpan,
                                       const elastic::Command&,
                                       Duration) -> Result<elastic::CommandReply> {
    ++looks;
    asked.push_back(endpoint);
    if (looks == 2 || looks > 4) {
      std::ofstream(folder_ / "coordinator") << "127.0.0.1:4343";
      return Error{Errc::kIo, "nobody listens"};
    }
    return elastic::CommandReply{true, R"({"step":)" + std::to_string(looks) + "}"};
  };
  EXPECT_EQ(run({"status", "--run-dir", folder_.path(), "--watch", "--interval", "20"}), 1);
  EXPECT_THAT(out(), HasSubstr("step              4\n"));
  EXPECT_THAT(err(), HasSubstr("nobody listens; if the coordinator of " + folder_.path()));
  EXPECT_EQ(looks, 7) << "a minute after the last answer";
  EXPECT_EQ(asked[1], "127.0.0.1:4242");
  EXPECT_EQ(asked[2], "127.0.0.1:4343") << "the next coordinator listens elsewhere";
}

TEST_F(OperatorTest, StatusSaysAtOnceThatTheHostDoesNotAnswer) {
  int looks = 0;
  std::string said_first;
  context_.services.send_command = [&](const std::string&, ByteSpan, const elastic::Command&,
                                       Duration timeout) -> Result<elastic::CommandReply> {
    if (++looks == 1) {
      return elastic::CommandReply{true, R"({"step":1})"};
    }
    said_first = looks == 3 ? err() : said_first;
    clock_ = clock_ + timeout;
    return Error{Errc::kDeadline, "127.0.0.1:4242 does not answer"};
  };
  EXPECT_EQ(run({"status", "--run-dir", folder_.path(), "--watch"}), 1);
  EXPECT_THAT(said_first, HasSubstr("does not answer"));
  EXPECT_THAT(said_first, HasSubstr("asking again for 60 s\n"));
  EXPECT_EQ(looks, 11) << "the time of queries without an answer counts: a minute in all";
  const std::string rest = err().substr(said_first.size());
  EXPECT_EQ(std::ranges::count(rest, '\n'), 1) << "it is said once, and at the end: " << rest;
}

TEST(StatusTable, SurvivesAnyAnswer) {
  EXPECT_FALSE(status_table("").ok());
  EXPECT_FALSE(status_table("[1]").ok());
  EXPECT_FALSE(status_table("{\"a\":").ok());
  const Result<std::string> odd =
      status_table(R"({"a":null,"b":[],"c":[{"x":1},2],"d":{"e":0.5}})");
  ASSERT_TRUE(odd.ok());
  EXPECT_THAT(odd.value(), HasSubstr("c\n  x\n  1\n  -\n"));
}

}  // namespace
}  // namespace mayfly::cli
