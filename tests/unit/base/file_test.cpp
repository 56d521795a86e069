#include "base/file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace mayfly {
namespace {

namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "mayfly-file-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const {
    return (folder_ / name).string();
  }
  [[nodiscard]] std::size_t entry_count() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

TEST_F(FileTest, ANamedPipeIsRefusedAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const Result<Bytes> content = read_file(path("pipe"), 100);
  ASSERT_FALSE(content.ok());
  EXPECT_EQ(content.error().code, Errc::kInvalidInput);
  EXPECT_EQ(content.error().detail, path("pipe") + " is not a regular file");
}

TEST_F(FileTest, ListsNamesInTheirOrder) {
  EXPECT_TRUE(names_in(path("absent")).empty());
  for (const char* name : {"b", ".c", "a.txt"}) {
    ASSERT_TRUE(write_file_atomic(path(name), std::string_view("x")).ok());
  }
  ASSERT_TRUE(make_directories(path("a")).ok());
  EXPECT_EQ(names_in(folder_.string()), (std::vector<std::string>{".c", "a", "a.txt", "b"}));
  EXPECT_TRUE(names_in(path("b")).empty()) << "a file";
  std::filesystem::create_directory_symlink(path("loop"), path("loop"));
  EXPECT_TRUE(names_in(path("loop")).empty());
  EXPECT_TRUE(names_in(std::string(5000, 'x')).empty()) << "the system refuses the name";
}

TEST_F(FileTest, ReadsBackWhatWasWritten) {
  ASSERT_TRUE(write_file_atomic(path("a"), std::string_view("content\0with zero", 17)).ok());
  const Result<std::string> text = read_text_file(path("a"), 100);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text.value(), std::string_view("content\0with zero", 17));
}

TEST_F(FileTest, ReplacesTheOldContentAndLeavesNoTemporaryFile) {
  ASSERT_TRUE(write_file_atomic(path("a"), std::string_view("a long first version")).ok());
  ASSERT_TRUE(write_file_atomic(path("a"), std::string_view("short")).ok());
  EXPECT_EQ(read_text_file(path("a"), 100).value(), "short");
  EXPECT_EQ(entry_count(), 1u);
}

/// The writers may be threads of one process, or the first processes of two containers that share a
/// folder and have the same process id.
TEST_F(FileTest, OfWritersAtOnceOneWinsWhole) {
  const std::string texts[] = {std::string(100'000, 'a'), std::string(200'000, 'b')};
  for (int round = 0; round < 20; ++round) {
    {
      std::vector<std::jthread> writers;
      for (const std::string& text : texts) {
        writers.emplace_back([&] { EXPECT_TRUE(write_file_atomic(path("a"), text).ok()); });
      }
    }
    const std::string found = read_text_file(path("a"), 1 << 20).value();
    EXPECT_TRUE(found == texts[0] || found == texts[1]) << found.size();
  }
  EXPECT_EQ(entry_count(), 1u);
}

TEST_F(FileTest, KeepsTheOldContentWhenWritingFails) {
  // The target is a folder that is not empty, so the rename must fail after the writing succeeded.
  fs::create_directories(folder_ / "target" / "inside");
  const Result<void> written = write_file_atomic(path("target"), std::string_view("new"));
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, Errc::kIo);
  EXPECT_TRUE(fs::exists(folder_ / "target" / "inside"));
  EXPECT_EQ(entry_count(), 1u) << "the temporary file is gone";
}

TEST_F(FileTest, ErrorsNameTheFileAndNotTheTemporaryOne) {
  const Result<void> written = write_file_atomic(path("missing/a"), std::string_view("new"));
  ASSERT_FALSE(written.ok());
  EXPECT_NE(written.error().detail.find("cannot create " + path("missing/a") + ": "),
            std::string::npos)
      << written.error().detail;
}

TEST_F(FileTest, NamesTheMissingFile) {
  const Result<Bytes> content = read_file(path("missing"), 100);
  ASSERT_FALSE(content.ok());
  EXPECT_EQ(content.error().code, Errc::kNotFound);
  EXPECT_NE(content.error().detail.find(path("missing")), std::string::npos);
}

TEST_F(FileTest, RefusesAFileAboveTheBoundAndSaysBothSizes) {
  ASSERT_TRUE(write_file_atomic(path("a"), std::string_view("12345678")).ok());
  const Result<Bytes> content = read_file(path("a"), 7);
  ASSERT_FALSE(content.ok());
  EXPECT_EQ(content.error().code, Errc::kInvalidInput);
  EXPECT_NE(content.error().detail.find("8 bytes"), std::string::npos);
  EXPECT_NE(content.error().detail.find("at most 7"), std::string::npos);
  EXPECT_TRUE(read_file(path("a"), 8).ok());
}

TEST_F(FileTest, RefusesAFolderWhereAFileIsMeant) {
  EXPECT_EQ(read_file(folder_.string(), 100).error().code, Errc::kInvalidInput);
}

TEST_F(FileTest, MakesParentsAndAcceptsAnExistingFolder) {
  EXPECT_TRUE(make_directories(path("a/b/c")).ok());
  EXPECT_TRUE(make_directories(path("a/b/c")).ok());
  EXPECT_TRUE(fs::is_directory(path("a/b/c")));
}

TEST_F(FileTest, ReportsAFileInTheWayOfAFolder) {
  ASSERT_TRUE(write_file_atomic(path("a"), std::string_view("x")).ok());
  const Result<void> made = make_directories(path("a/b"));
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().detail.find(path("a/b")), std::string::npos);
}

}  // namespace
}  // namespace mayfly
