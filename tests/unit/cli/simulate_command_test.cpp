#include <gmock/gmock.h>

#include "tests/unit/cli/cli_fixture.hpp"

namespace mayfly::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(CliTest, SimulateEndsWithOneSummaryLineAndIsSilentOtherwise) {
  ASSERT_EQ(run({"simulate", "--seeds", "20", "--first-seed", "3", "--jobs", "2"}), kExitDone);
  EXPECT_THAT(out(), HasSubstr("20 seeds from 3: "));
  EXPECT_THAT(out(), HasSubstr("0 seeds failing, fingerprint "));
  const std::string text = out();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(err(), "");
}

TEST_F(CliTest, SimulateGivesTheSameForAnyNumberOfJobs) {
  ASSERT_EQ(run({"simulate", "--seeds", "20", "--jobs", "1"}), kExitDone);
  const std::string one = out();
  ASSERT_EQ(run({"simulate", "--seeds", "20", "--jobs", "3"}), kExitDone);
  EXPECT_EQ(out(), one);
}

TEST_F(CliTest, AFailingSeedIsExitCode1WithTheCommandThatReplaysIt) {
  ASSERT_EQ(run({"simulate", "--seeds", "30", "--sabotage", "skips-sync"}), kExitFailed);
  EXPECT_THAT(out(), HasSubstr("violated: "));
  const std::string story = out();
  const std::string command = "mayfly simulate --replay ";
  const std::size_t seed = story.find(command) + command.size();
  ASSERT_NE(seed, std::string::npos);
  const std::string number = story.substr(seed, story.find(' ', seed) - seed);
  EXPECT_EQ(run({"simulate", "--replay", number, "--sabotage", "skips-sync"}), kExitFailed);
  EXPECT_THAT(out(), HasSubstr("violated: "));
  EXPECT_EQ(run({"simulate", "--replay", number}), kExitDone);
  EXPECT_THAT(out(), HasSubstr("nothing was violated; fingerprint "));
}

TEST_F(CliTest, SimulateAsJsonIsOneObjectPerLine) {
  ASSERT_EQ(run({"simulate", "--seeds", "30", "--sabotage", "skips-sync", "--json"}), kExitFailed);
  EXPECT_THAT(out(), HasSubstr("{\"kind\": \"failing_seed\", \"seed\": "));
  EXPECT_THAT(out(), HasSubstr("{\"kind\": \"simulation\", \"world\": \"membership\", "
                               "\"first_seed\": 1, \"seeds\": 30, "));
}

TEST_F(CliTest, SimulateHasAWorldOfParameterServers) {
  const std::vector<std::string> words = {"simulate", "--world", "parameter-servers"};
  const auto with = [&words](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return more;
  };
  ASSERT_EQ(run(with({"--seeds", "40", "--jobs", "2"})), kExitDone) << out();
  EXPECT_THAT(out(), HasSubstr("40 seeds from 1: "));
  ASSERT_EQ(run(with({"--seeds", "40", "--json", "--sabotage", "wrong-slice"})), kExitFailed);
  EXPECT_THAT(out(), HasSubstr("\"world\": \"parameter-servers\""));
  EXPECT_EQ(run(with({"--replay", "1"})), kExitDone);
}

TEST_F(CliTest, SimulateWithBadNumbersIsBadUsage) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--seeds", "many"},
                                                {"--seeds", "0"},
                                                {"--jobs", "0"},
                                                {"--replay", "x"},
                                                {"--sabotage", "coffee"}}) {
    std::vector<std::string> all = {"simulate"};
    all.insert(all.end(), words.begin(), words.end());
    EXPECT_EQ(run(all), kExitUsage) << words[0];
    EXPECT_THAT(err(), Not(HasSubstr("\n\n")));
  }
}

}  // namespace
}  // namespace mayfly::cli
