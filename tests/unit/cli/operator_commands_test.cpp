#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "cli/operator_commands.hpp"
#include "elastic/net/job_token.hpp"
#include "tests/unit/cli/cli_fixture.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::cli {
namespace {

using ::testing::HasSubstr;

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

TEST_F(OperatorTest, ScaleAndDrainTakeANumber) {
  EXPECT_EQ(run({"scale", "--run-dir", folder_.path(), "6"}), 0) << err();
  EXPECT_EQ(asked_, "127.0.0.1:4242 scale 6");
  EXPECT_EQ(run({"drain", "host:7", "3", "--token-file", token_file_}), 0) << err();
  EXPECT_EQ(asked_, "host:7 drain 3");
  EXPECT_EQ(run({"scale", folder_.path(), "7"}), 0) << err();
  EXPECT_EQ(asked_, "127.0.0.1:4242 scale 7");
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
  EXPECT_THAT(err(), HasSubstr("does not answer"));
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

TEST_F(OperatorTest, StatusWatchesUntilTheJobEnds) {
  int looks = 0;
  context_.services.send_command = [&](const std::string&, ByteSpan, const elastic::Command&,
                                       Duration) -> Result<elastic::CommandReply> {
    if (++looks == 4) {
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
