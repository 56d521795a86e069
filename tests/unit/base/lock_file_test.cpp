#include "base/lock_file.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/file.hpp"

namespace mayfly {
namespace {

namespace fs = std::filesystem;

class LockFileTest : public ::testing::Test {
 protected:
  LockFileTest() {
    char pattern[] = "/tmp/mayfly-lock-XXXXXX";
    folder_ = ::mkdtemp(pattern);
  }
  ~LockFileTest() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  [[nodiscard]] std::string path() const { return folder_ + "/runs/first/lock"; }
  [[nodiscard]] bool is_free() const { return LockFile::take(path(), milliseconds(0)).ok(); }

  std::string folder_;
};

TEST_F(LockFileTest, ASecondIsRefusedAndToldWhoHoldsIt) {
  const Result<LockFile> first = LockFile::take(path());
  ASSERT_TRUE(first.ok()) << first.error().detail;
  const Result<LockFile> second = LockFile::take(path(), milliseconds(0));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Errc::kRefused);
  EXPECT_EQ(second.error().detail, "process " + std::to_string(::getpid()) + " holds " + path());
}

TEST_F(LockFileTest, IsFreeOnceItIsGone) {
  { const Result<LockFile> first = LockFile::take(path()); }
  EXPECT_TRUE(is_free());
  EXPECT_TRUE(fs::exists(path())) << "only discard() removes it";
}

TEST_F(LockFileTest, AKilledProcessLetsGo) {
  const pid_t child = ::fork();
  if (child == 0) {
    const Result<LockFile> lock = LockFile::take(path());
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(LockFile::take(path()).ok());
}

TEST_F(LockFileTest, AForkedChildHoldsItAsWell) {
  int release[2];
  ASSERT_EQ(::pipe(release), 0);
  pid_t child = 0;
  {
    const Result<LockFile> lock = LockFile::take(path());
    ASSERT_TRUE(lock.ok());
    child = ::fork();
    if (child == 0) {
      lock.value().sign();
      char byte = 0;
      ::close(release[1]);
      [[maybe_unused]] const ssize_t n = ::read(release[0], &byte, 1);  // until the parent closes
      ::_exit(0);
    }
  }
  EXPECT_FALSE(is_free());
  ::close(release[1]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(is_free());
  ::close(release[0]);
}

TEST_F(LockFileTest, DiscardRemovesWhatItMadeAndNothingElse) {
  {
    Result<LockFile> lock = LockFile::take(path());
    ASSERT_TRUE(lock.ok());
    std::move(lock).value().discard();
  }
  EXPECT_TRUE(fs::is_empty(folder_));
  ASSERT_TRUE(make_directories(folder_ + "/runs").ok());
  {
    Result<LockFile> lock = LockFile::take(path());
    ASSERT_TRUE(write_file_atomic(folder_ + "/runs/first/notes", "mine").ok());
    std::move(lock).value().discard();
  }
  EXPECT_FALSE(fs::exists(path()));
  EXPECT_TRUE(fs::exists(folder_ + "/runs/first/notes"));
  { const Result<LockFile> lock = LockFile::take(path()); }
  {
    Result<LockFile> lock = LockFile::take(path());
    std::move(lock).value().discard();
  }
  EXPECT_TRUE(fs::exists(path())) << "an earlier one made it";
}

TEST_F(LockFileTest, WhatAnotherHasMadeMeanwhileStays) {
  Result<LockFile> first = LockFile::take(path());
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(fs::remove(path()));
  const Result<LockFile> second = LockFile::take(path());
  ASSERT_TRUE(second.ok());
  std::move(first).value().discard();
  EXPECT_TRUE(fs::exists(path()));
  EXPECT_FALSE(is_free());
}

// Goal: however often the file is removed and created again, two threads never hold it at once.
TEST_F(LockFileTest, ManyThatTakeAndDiscardItNeverHaveItTogether) {
  std::atomic<int> holders = 0;
  std::atomic<int> together = 0;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 200; ++round) {
        Result<LockFile> lock = LockFile::take(path(), seconds(60));
        ASSERT_TRUE(lock.ok()) << lock.error().detail;
        together += ++holders > 1 ? 1 : 0;
        --holders;
        if ((round + i) % 3 != 0) {
          std::move(lock).value().discard();
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(together, 0);
}

TEST_F(LockFileTest, SaysWhatKeepsItFromBeingMade) {
  ASSERT_TRUE(write_file_atomic(folder_ + "/runs", "a file").ok());
  const Result<LockFile> lock = LockFile::take(path(), milliseconds(0));
  ASSERT_FALSE(lock.ok());
  EXPECT_EQ(lock.error().code, Errc::kIo);
  EXPECT_NE(lock.error().detail.find(folder_ + "/runs/first"), std::string::npos)
      << lock.error().detail;
}

}  // namespace
}  // namespace mayfly
