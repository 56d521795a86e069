#include "elastic/net/view_log_file.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <filesystem>
#include <string>

#include "base/file.hpp"

namespace mayfly::elastic {
namespace {

class ViewLogFileTest : public ::testing::Test {
 protected:
  ViewLogFileTest() {
    char pattern[] = "/tmp/mayfly-view-log-XXXXXX";
    folder_ = ::mkdtemp(pattern);
  }
  ~ViewLogFileTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  [[nodiscard]] std::string path() const { return folder_ + "/view.log"; }
  [[nodiscard]] std::unique_ptr<ViewLogFile> open() const {
    Result<std::unique_ptr<ViewLogFile>> file = ViewLogFile::open(path());
    EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().detail);
    return std::move(file).value();
  }
  [[nodiscard]] std::string content() const { return read_text_file(path(), 1 << 20).value(); }

  std::string folder_;
};

ByteSpan bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}
std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_F(ViewLogFileTest, WhatWasAppendedIsFoundByTheNext) {
  {
    const auto file = open();
    EXPECT_TRUE(file->found().empty());
    file->append(bytes_of("one "));
    file->append(bytes_of("two"), true);
    EXPECT_EQ(file->bytes(), 7u);
    EXPECT_EQ(content(), "one two") << "it reaches the kernel before append returns";
  }
  EXPECT_EQ(text_of(open()->found()), "one two");
}

TEST_F(ViewLogFileTest, RewritingReplacesAllAndAppendingGoesOnBehindIt) {
  const auto file = open();
  file->append(bytes_of("a long history"));
  ASSERT_TRUE(file->rewrite(bytes_of("short")).ok());
  file->append(bytes_of("er"));
  EXPECT_EQ(file->bytes(), 7u);
  EXPECT_EQ(content(), "shorter");
}

TEST_F(ViewLogFileTest, AKilledWriterLosesNothing) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto file = ViewLogFile::open(path());
    file.value()->append(bytes_of("last words"));
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(text_of(open()->found()), "last words");
}

TEST_F(ViewLogFileTest, ARecordThatDoesNotFitIsGivenUpAsAWhole) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{10, 10};  // write(2) behaves as on a full disk
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto file = ViewLogFile::open(path());
    file.value()->append(bytes_of("12345678"));
    file.value()->append(bytes_of("abcdef"));
    file.value()->append(bytes_of("90"));
    ::_exit(file.value()->bytes() == 10 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(content(), "1234567890");
}

TEST_F(ViewLogFileTest, ALogThatWasFullForAWhileKeepsWhatFitsAfterwards) {
  const auto log = DurableViewLog::open(path());
  ASSERT_TRUE(log.ok() && log.value()->begin().ok());
  EXPECT_TRUE(log.value()->append(log_record::JobStarted{7, 8, {}}, false));
  EXPECT_TRUE(log.value()->append(log_record::IncarnationStarted{Incarnation{1}}, true));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_action = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{static_cast<rlim_t>(content().size() + 3), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  EXPECT_FALSE(log.value()->append(log_record::Paused{true}, false));
  EXPECT_FALSE(log.value()->append(log_record::IncarnationStarted{Incarnation{2}}, true));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, old_action);
  EXPECT_TRUE(log.value()->append(log_record::IncarnationStarted{Incarnation{3}}, true));
  const Result<LogContents> found = peek_view_log(path());
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found.value().incarnation, Incarnation{3});
  EXPECT_FALSE(found.value().is_paused);
  EXPECT_EQ(found.value().dropped_bytes, 0u);
}

// The disk may be full when the log is to be shortened.
TEST_F(ViewLogFileTest, ALogThatCannotBeShortenedGoesOnAsItIs) {
  ASSERT_TRUE(DurableViewLog::open(path()).value()->begin().ok());
  const std::string longest = folder_ + "/" + std::string(NAME_MAX, 'v');
  std::filesystem::rename(path(), longest);  // the name of a new file beside it is too long
  const auto log = DurableViewLog::open(longest);
  ASSERT_TRUE(log.ok());
  EXPECT_TRUE(log.value()->append(log_record::JobStarted{7, 8, {}}, false));
  constexpr std::uint32_t kIncarnations = 60'000;  // enough to make the log shorten itself
  for (std::uint32_t i = 1; i <= kIncarnations; ++i) {
    ASSERT_TRUE(log.value()->append(log_record::IncarnationStarted{Incarnation{i}}, false));
  }
  EXPECT_TRUE(log.value()->append(log_record::JobEnded{Outcome::kDone, "all of it"}, true));
  const Result<LogContents> found = peek_view_log(longest);
  ASSERT_TRUE(found.ok()) << found.error().detail;
  EXPECT_EQ(found.value().incarnation, Incarnation{kIncarnations});
  EXPECT_EQ(found.value().dropped_bytes, 0u);
  ASSERT_TRUE(found.value().ended.has_value());
  EXPECT_EQ(found.value().ended->detail, "all of it");
}

TEST_F(ViewLogFileTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_FALSE(ViewLogFile::open(folder_ + "/missing/view.log").ok());
}

}  // namespace
}  // namespace mayfly::elastic
