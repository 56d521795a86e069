#include "base/process/spawn.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/file.hpp"
#include "base/unique_fd.hpp"

namespace mayfly {
namespace {

/// Starts a shell by a plan and reads its output.
class SpawnPlanTest : public testing::Test {
 protected:
  SpawnPlanTest()
      : path_(std::filesystem::temp_directory_path() /
              ("mayfly_spawn_plan_" + std::to_string(::getpid()))) {
    plan_.open(STDIN_FILENO, "/dev/null", O_RDONLY);
    plan_.open(STDOUT_FILENO, path_, O_WRONLY | O_CREAT | O_TRUNC);
    plan_.copy(STDERR_FILENO, STDOUT_FILENO);
  }
  ~SpawnPlanTest() override { std::filesystem::remove(path_); }

  std::string printed(const std::string& script,
                      const std::vector<std::pair<std::string, std::string>>& additions = {}) {
    pid_t pid = 0;
    EXPECT_EQ(plan_.start({"sh", "-c", script}, merged_environment(additions), pid), 0);
    EXPECT_EQ(wait_for_end(pid).signal, 0);
    const Result<std::string> text = read_text_file(path_, 10'000);
    return text.ok() ? text.value() : text.error().detail;
  }

  std::string path_;
  SpawnPlan plan_;
};

TEST(MergedEnvironment, AdditionsReplaceWhatHasTheirNameAndNothingElse) {
  ::setenv("SPAWN_TEST_KEPT", "a=b", 1);
  ::setenv("SPAWN_TEST_REPLACED", "old", 1);
  const std::vector<std::string> lines =
      merged_environment({{"SPAWN_TEST_REPLACED", "new"}, {"SPAWN_TEST_ADDED", ""}});
  const auto count = [&](const std::string& line) {
    return std::count(lines.begin(), lines.end(), line);
  };
  EXPECT_EQ(count("SPAWN_TEST_KEPT=a=b"), 1);
  EXPECT_EQ(count("SPAWN_TEST_REPLACED=new"), 1);
  EXPECT_EQ(count("SPAWN_TEST_REPLACED=old"), 0);
  EXPECT_EQ(count("SPAWN_TEST_ADDED="), 1);
  EXPECT_TRUE(std::is_sorted(lines.begin(), lines.end()));
}

TEST(MergedEnvironment, IsWithoutWhatIsTakenOutUnlessItIsAdded) {
  ::setenv("SPAWN_TEST_OUT", "a", 1);
  ::setenv("SPAWN_TEST_BACK", "a", 1);
  const std::vector<std::string> lines = merged_environment(
      {{"SPAWN_TEST_BACK", "b"}}, {"SPAWN_TEST_OUT", "SPAWN_TEST_BACK", "SPAWN_TEST_NOWHERE"});
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "SPAWN_TEST_OUT=a"), 0);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "SPAWN_TEST_BACK=b"), 1);
}

TEST_F(SpawnPlanTest, AProgramGetsThePlannedDescriptorsAndNoOther) {
  const UniqueFd inheritable(::open("/dev/null", O_RDONLY));  // without close-on-exec
  ASSERT_GT(inheritable.get(), 2);
  const std::string text = printed(
      "echo said; echo complained >&2; read line || echo no input;"
      "[ ! -e /proc/self/fd/" +
      std::to_string(inheritable.get()) + " ] && echo nothing inherited");
  EXPECT_EQ(text, "said\ncomplained\nno input\nnothing inherited\n");
}

TEST_F(SpawnPlanTest, SignalsAreNeitherBlockedNorIgnored) {
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const auto old = ::signal(SIGPIPE, SIG_IGN);
  const auto old_hangup = ::signal(SIGHUP, SIG_DFL);
  const std::string text = printed("grep -E '^Sig(Blk|Ign)' /proc/self/status | cut -f2");
  ::signal(SIGHUP, old_hangup);
  ::signal(SIGPIPE, old);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  constexpr unsigned long long kOrdinary = 0x7fffffff;  // signals 1 to 31; others are the library's
  const std::size_t newline = text.find('\n');
  EXPECT_EQ(std::stoull(text.substr(0, newline), nullptr, 16), 0u) << text;
  EXPECT_EQ(std::stoull(text.substr(newline), nullptr, 16) & kOrdinary, 0u) << text;
}

TEST_F(SpawnPlanTest, AHangupThatIsIgnoredStaysIgnored) {
  const auto old = ::signal(SIGHUP, SIG_IGN);  // as nohup does
  EXPECT_EQ(printed("kill -HUP $$; echo still there"), "still there\n");
  ::signal(SIGHUP, old);
}

TEST_F(SpawnPlanTest, AGroupOfItsOwnOnlyIfThePlanSaysSo) {
  const std::string own_group = std::to_string(::getpgrp()) + "\n";
  EXPECT_EQ(printed("cut -d' ' -f5 /proc/$$/stat"), own_group);
  plan_.lead_group();
  EXPECT_NE(printed("cut -d' ' -f5 /proc/$$/stat"), own_group);
}

TEST_F(SpawnPlanTest, AProgramThatDoesNotExistIsAnErrno) {
  pid_t pid = 0;
  EXPECT_EQ(plan_.start({"/no/such/program"}, {}, pid), ENOENT);
}

TEST_F(SpawnPlanTest, EnvironmentAndArgumentsReachTheProgram) {
  EXPECT_EQ(printed("echo \"$SPAWN_TEST_WORD\"", {{"SPAWN_TEST_WORD", "two words"}}),
            "two words\n");
}

}  // namespace
}  // namespace mayfly
