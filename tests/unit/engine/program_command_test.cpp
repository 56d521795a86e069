#include "engine/launch/program_command.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include "cloud_hooks/local_provider.hpp"
#include "engine/membership/exit_codes.hpp"

namespace mayfly::engine {
namespace {

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

}  // namespace
}  // namespace mayfly::engine
