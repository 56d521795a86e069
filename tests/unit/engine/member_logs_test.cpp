#include "engine/run/member_logs.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

namespace fs = std::filesystem;

class MemberLogsTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directory(run_ / "logs"); }

  std::string text_of(int member) {
    const Result<std::string> text =
        read_text_file(run_ / ("logs/member-" + std::to_string(member) + ".log"), 4u << 20);
    return text.ok() ? text.value() : "none";
  }

  test_support::TemporaryFolder run_;
  MemberLogs logs_{run_.path()};
};

TEST_F(MemberLogsTest, HaveEachLineOnce) {
  logs_.append(MemberId{3}, {0, "a\nb\n"});
  logs_.append(MemberId{4}, {0, "other\n"});
  logs_.append(MemberId{3}, {0, "a\nb\n"});     // sent again after the connection broke
  logs_.append(MemberId{3}, {1, "b\nc\nd\n"});  // the last two lines are new
  EXPECT_EQ(text_of(3), "a\nb\nc\nd\n");
  EXPECT_EQ(text_of(4), "other\n");
}

TEST_F(MemberLogsTest, SayWhatIsMissing) {
  logs_.append(MemberId{3}, {5, "f\n"});  // an evicted worker joins again with another id
  logs_.append(MemberId{3}, {9, "j\n"});
  EXPECT_EQ(text_of(3), "f\n(3 lines are missing)\nj\n");
}

TEST_F(MemberLogsTest, GoOnAfterACoordinatorBefore) {
  logs_.append(MemberId{3}, {0, "a\n"});
  MemberLogs next(run_.path());
  next.append(MemberId{3}, {0, "a\nb\n"});  // the first line was not confirmed
  next.append(MemberId{3}, {2, "c\n"});
  EXPECT_EQ(text_of(3), "a\nb\nc\n");
}

TEST_F(MemberLogsTest, AreBoundedInSizeAndNumber) {
  const std::string line = std::string(LogRecord::kBytesMax - 1, 'x') + "\n";
  for (std::uint64_t i = 0; i < 300; ++i) {
    logs_.append(MemberId{1}, {i, line});
  }
  EXPECT_LT(text_of(1).size(), MemberLogs::kBytesMax + 2 * LogRecord::kBytesMax);
  EXPECT_NE(text_of(1).find("the file is full"), std::string::npos);
  for (std::uint64_t member = 2; member < 200; ++member) {
    logs_.append(MemberId{member}, {0, "a\n"});
  }
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(run_ / "logs")) {
    files += entry.is_regular_file() ? 1 : 0;
  }
  EXPECT_LE(files, MemberLogs::kFilesMax);
}

TEST_F(MemberLogsTest, DoNotMindAFolderThatIsNotThere) {
  fs::remove_all(run_ / "logs");
  logs_.append(MemberId{1}, {0, "a\n"});
  EXPECT_EQ(text_of(1), "none");
}

}  // namespace
}  // namespace mayfly::engine
