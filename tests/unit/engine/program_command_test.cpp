#include "engine/launch/program_command.hpp"

#include <gmock/gmock.h>
#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cloud_hooks/local_provider.hpp"
#include "engine/membership/exit_codes.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

class RunCommand : public testing::Test {
 protected:
  ~RunCommand() override { ::unsetenv(cloud_hooks::kLauncherPidVariable); }
};

TEST_F(RunCommand, ReturnsTheExitCodeOfTheCommand) {
  EXPECT_EQ(run_command({"sh", "-c", "exit 5"}), 5);
  EXPECT_EQ(run_command({"/nonexistent/program"}), kExitFailed);
}

TEST_F(RunCommand, WhatOnlyThisProgramIgnoresIsNotIgnoredByTheCommand) {
  const auto before = ::signal(SIGPIPE, SIG_IGN);  // as our main functions do
  EXPECT_EQ(run_command({"sh", "-c", "kill -PIPE $$; exit 5"}), kExitFailed);
  ::signal(SIGPIPE, before);
}

TEST(CheckProgram, NamesAProgramThatCannotBeStarted) {
  EXPECT_TRUE(check_program({"sh", "-c", "exit 5"}).ok());
  EXPECT_TRUE(check_program({"/bin/sh"}).ok());
  const test_support::TemporaryFolder folder;
  const std::string file = folder / "train.py";
  EXPECT_EQ(check_program({file}).error().detail, file + " does not exist");
  std::ofstream(file) << "#!/usr/bin/python3\n";
  EXPECT_EQ(check_program({file}).error().detail, file + " is not an executable file");
  EXPECT_EQ(check_program({folder / ""}).error().code, Errc::kInvalidInput) << "a folder";
  EXPECT_EQ(check_program({"no-such-program"}).error().detail,
            "there is no program 'no-such-program' in PATH");
}

TEST(CommandAt, NamesTheSlotIfItIsKnown) {
  ProgramPlace place;
  EXPECT_THAT(command_at(place, {"train"}), Not(Contains(HasSubstr("MAYFLY_SLOT"))));
  place.slot = 0;
  EXPECT_THAT(command_at(place, {"train"}), Contains("MAYFLY_SLOT=0"));
}

TEST(CommandAt, NamesFilesByPathsThatAreValidInEachFolder) {
  ProgramPlace place;
  place.job_file = "runs/a/config.toml";
  place.run_dir = "runs/a";
  place.token_file = "token";
  const std::string here = std::filesystem::current_path();
  EXPECT_THAT(
      command_at(place, {"train"}),
      IsSupersetOf({"MAYFLY_JOB_FILE=" + here + "/runs/a/config.toml",
                    "MAYFLY_RUN_DIR=" + here + "/runs/a", "MAYFLY_TOKEN_FILE=" + here + "/token"}));
}

}  // namespace
}  // namespace mayfly::engine
