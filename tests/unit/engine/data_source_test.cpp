// A worker copies a data set to its own host. Whole jobs are tested in
// tests/integration/engine/data_from_test.py.

#include "engine/processes/data_source.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/lock_file.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

namespace fs = std::filesystem;

/// The settings of a worker that has no data set.
JobConfig copying(const std::string& from, const std::string& cache) {
  JobConfig config;
  config.data = "/nowhere/images";
  config.data_from = from;
  config.cache_dir = cache;
  return config;
}

TEST(FetchData, ACopyOfOneLargeFileIsCalledOff) {
  constexpr std::uintmax_t kLargeBytes = std::uintmax_t{64} << 20;
  const test_support::TemporaryFolder folder;
  const std::string tar = folder / "set.tar";
  std::ofstream(tar) << "a tar";
  fs::resize_file(tar, kLargeBytes);
  JobConfig config = copying(tar, folder / "cache");
  int asked = 0;
  const Result<void> fetched = fetch_data(config, [&asked] { return ++asked > 3; });
  ASSERT_FALSE(fetched.ok());
  EXPECT_EQ(fetched.error().code, Errc::kAborted) << fetched.error().detail;
  EXPECT_EQ(asked, 4);
  EXPECT_FALSE(fs::exists(folder / "cache")) << "the fetch had made it";
  ASSERT_TRUE(fetch_data(config, [] { return false; }).ok());
  EXPECT_EQ(fs::file_size(config.data), kLargeBytes);
}

TEST(FetchData, OneRelativePathIsAnotherFolderElsewhere) {
  const test_support::TemporaryFolder folder;
  const fs::path before = fs::current_path();
  std::string fetched[2];
  for (const int place : {0, 1}) {
    const fs::path here = folder / ("place" + std::to_string(place));
    for (const char* part : {"train", "test"}) {
      fs::create_directories(here / "set" / part / "cat");
      std::ofstream(here / "set" / part / "cat/1.jpg") << place;
    }
    fs::current_path(here);
    JobConfig config = copying("set", folder / "cache");
    const Result<void> copied = fetch_data(config, [] { return false; });
    fs::current_path(before);
    ASSERT_TRUE(copied.ok()) << copied.error().detail;
    fetched[place] = config.data;
  }
  EXPECT_NE(fetched[0], fetched[1]);
}

/// Creates an image folder; returns its path.
std::string small_set(const fs::path& folder) {
  for (const char* part : {"train", "test"}) {
    fs::create_directories(folder / part / "cat");
    std::ofstream(folder / part / "cat/1.jpg") << "an image";
  }
  return folder.string();
}

TEST(FetchData, PartsOfAnotherDataSetGoUnlessSomebodyFetchesIt) {
  const test_support::TemporaryFolder folder;
  const fs::path cache = folder / "cache";
  for (const char* name : {"data-killed.partial-7-1", "data-killed.partial-8-1",
                           "data-fetched.partial-9-1", "mine.partial-1", "data-complete"}) {
    fs::create_directories(cache / name / "train");
  }
  const Result<LockFile> fetches = LockFile::take((cache / "data-fetched.lock").string());
  ASSERT_TRUE(fetches.ok());
  JobConfig config = copying(small_set(folder / "set"), cache.string());
  const Result<void> copied = fetch_data(config, [] { return false; });
  ASSERT_TRUE(copied.ok()) << copied.error().detail;
  EXPECT_FALSE(fs::exists(cache / "data-killed.partial-7-1"));
  EXPECT_FALSE(fs::exists(cache / "data-killed.partial-8-1"));
  for (const char* name : {"data-fetched.partial-9-1", "mine.partial-1", "data-complete"}) {
    EXPECT_TRUE(fs::exists(cache / name)) << name;
  }
}

}  // namespace
}  // namespace mayfly::engine
