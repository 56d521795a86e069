#include "base/log.hpp"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/file.hpp"

namespace mayfly {
namespace {

// These tests run in child processes: a process has one log, which must not change for other tests.
TEST(LogDeathTest, WritesAllLevelsToTheFileAndOnlySevereOnesToStandardError) {
  std::string folder = (std::filesystem::temp_directory_path() / "mayfly-log-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/worker.log";
  EXPECT_EXIT(
      {
        log::open("worker 3", path, log::Level::kWarning);
        log::debug("first {not a format}");
        log::error("second");
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^[^\n]*worker 3[^\n]*second\n$");
  const Result<std::string> text = read_text_file(path, 4096);
  ASSERT_TRUE(text.ok());
  EXPECT_NE(text.value().find("first {not a format}"), std::string::npos);
  EXPECT_NE(text.value().find("second"), std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST(LogDeathTest, WritesToStandardErrorFromTheBeginningToTheEndOfTheProcess) {
  EXPECT_EXIT(
      {
        std::atexit([] { log::error("late"); });
        log::warning("early");
        log::open("worker", "", log::Level::kError);
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "early[^\n]*\n[^\n]*worker[^\n]*late");
}

TEST(LogDeathTest, LeavesTheLoggerOfAProgramThatUsesTheSameLibrary) {
  EXPECT_EXIT(
      {
        const auto of_program = spdlog::default_logger();
        log::open("worker", "", log::Level::kError);
        std::exit(spdlog::default_logger() == of_program ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(LogDeathTest, KeepsTheNewestLinesUntilTheyAreTaken) {
  EXPECT_EXIT(
      {
        log::open("worker", "", log::Level::kError);
        log::info("before");
        log::keep_lines(200);
        log::debug("no debug lines");
        for (int i = 0; i < 10; ++i) {
          log::info("line " + std::to_string(i));  // about 35 bytes each
        }
        const log::KeptLines two = log::take_kept_lines(80);
        const log::KeptLines rest = log::take_kept_lines(1000);
        const bool right = two.first > 0 && two.text.ends_with('\n') &&
                           std::count(two.text.begin(), two.text.end(), '\n') == 2 &&
                           rest.first == two.first + 2 && rest.text.ends_with("line 9\n") &&
                           log::take_kept_lines(1000).text.empty();
        std::exit(right ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace mayfly
