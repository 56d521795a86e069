#include "base/log.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.hpp"

namespace mayfly {
namespace {

// In a child process: the log is one per process, and other tests must keep theirs.
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

}  // namespace
}  // namespace mayfly
