#include "base/process/child_process.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string_view>

#include "base/file.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly {
namespace {

using mayfly::test_support::TemporaryFolder;

Instant child_deadline() {
  return monotonic_now() + seconds(60);
}

TEST(ChildProcess, RunsWithItsEnvironmentAndLog) {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  ChildProcess child =
      ChildProcess::start({"sh", "-c", "echo first; echo $GREETING >&2"}, {{"GREETING", "hi"}}, log)
          .value();
  EXPECT_TRUE(child.wait_until(child_deadline()));
  EXPECT_EQ(last_line_of_log(log), "hi");
}

TEST(ChildProcess, HasNoVariablesThatAreTakenOut) {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  ::setenv("CHILD_TEST_OUT", "a", 1);
  ChildProcess child =
      ChildProcess::start({"sh", "-c", "echo ${CHILD_TEST_OUT-none}"}, {}, log, {"CHILD_TEST_OUT"})
          .value();
  EXPECT_TRUE(child.wait_until(child_deadline()));
  EXPECT_EQ(last_line_of_log(log), "none");
  EXPECT_STREQ(::getenv("CHILD_TEST_OUT"), "a") << "ours is as it was";
}

TEST(ChildProcess, ProgramThatIsNotThereSaysSoInTheLog) {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  ChildProcess child = ChildProcess::start({"/nonexistent/program"}, {}, log).value();
  EXPECT_TRUE(child.wait_until(child_deadline()));
  EXPECT_EQ(last_line_of_log(log), "cannot start /nonexistent/program: No such file or directory");
}

TEST(ChildProcess, IsKilledWithItsOwnChildren) {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  {
    ChildProcess child = ChildProcess::start({"sh", "-c", "sleep 300 & wait"}, {}, log).value();
    EXPECT_FALSE(child.wait_until(monotonic_now() + milliseconds(20)));
  }  // would wait for five minutes otherwise
  EXPECT_EQ(last_line_of_log(log), "");
}

TEST(LastLine, IsTheLastThatSaysSomething) {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  ASSERT_TRUE(write_file_atomic(log, std::string_view("one\n  a-b two \n \n------\n")).ok());
  EXPECT_EQ(last_line_of_log(log), "a-b two");
  EXPECT_EQ(last_line_of_log("/nonexistent/log"), "");
}

}  // namespace
}  // namespace mayfly
