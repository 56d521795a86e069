#include "engine/run/start_files.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "base/file.hpp"
#include "engine/run/run_directory.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

namespace fs = std::filesystem;
using mayfly::test_support::TemporaryFolder;

std::set<std::string> everything_in(const std::string& folder) {
  std::set<std::string> found;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    found.insert(fs::relative(entry.path(), folder).string());
  }
  return found;
}

void put(const std::string& path) {
  fs::create_directories(fs::path(path).parent_path());
  ASSERT_TRUE(write_file_atomic(path, "something").ok());
}

/// Writes the files that a coordinator writes before it listens.
void write_start(const std::string& run_dir) {
  JobConfig config;
  config.run_dir = run_dir;
  ASSERT_TRUE(RunDirectory::create(config).ok());
  for (const char* name : {"/view.log", "/token", "/logs/coordinator.log"}) {
    put(run_dir + name);
  }
}

TEST(StartFiles, TakesBackAllThatTheCommandWroteIntoANewDirectory) {
  const TemporaryFolder folder;
  const std::string run_dir = folder / "run";
  StartFiles files(run_dir, run_dir + "/token");
  write_start(run_dir);
  files.take_back();
  EXPECT_EQ(everything_in(folder.path()), std::set<std::string>{"run"}) << "whose lock made it";
}

TEST(StartFiles, LeavesWhatWasThere) {
  const TemporaryFolder folder;
  const std::string run_dir = folder / "run";
  for (const char* name : {"/notes", "/token", "/logs/old.log", "/tb/events.out.tfevents.1"}) {
    put(run_dir + name);
  }
  const std::set<std::string> before = everything_in(folder.path());
  StartFiles files(run_dir, run_dir + "/token");
  write_start(run_dir);
  EXPECT_NE(everything_in(folder.path()), before);
  files.take_back();
  EXPECT_EQ(everything_in(folder.path()), before);
}

TEST(StartFiles, LeavesWhatSomebodyElsePutThereMeanwhile) {
  const TemporaryFolder folder;
  const std::string run_dir = folder / "run";
  StartFiles files(run_dir, run_dir + "/token");
  write_start(run_dir);
  put(run_dir + "/logs/worker-0.log");
  put(run_dir + "/checkpoints/step-1/model.safetensors");
  files.take_back();
  EXPECT_EQ(everything_in(folder.path()),
            (std::set<std::string>{"run", "run/logs", "run/logs/worker-0.log", "run/checkpoints",
                                   "run/checkpoints/step-1",
                                   "run/checkpoints/step-1/model.safetensors"}));
}

std::map<std::string, std::string> contents_of(const std::string& folder) {
  std::map<std::string, std::string> contents;
  for (const std::string& name : everything_in(folder)) {
    if (fs::is_regular_file(folder + "/" + name)) {
      contents[name] = read_text_file(folder + "/" + name, 1 << 20).value();
    }
  }
  return contents;
}

TEST(StartFiles, GivesAnEarlierPartOfTheJobItsContentsBack) {
  const TemporaryFolder folder;
  const std::string run_dir = folder / "run";
  write_start(run_dir);
  put(run_dir + "/summary.json");
  const std::map<std::string, std::string> before = contents_of(run_dir);
  StartFiles files(run_dir, run_dir + "/token");
  files.keep_contents();

  JobConfig resumed;
  resumed.run_dir = run_dir;
  resumed.resume = run_dir;
  resumed.seed = 7;
  ASSERT_TRUE(RunDirectory::create(resumed).ok());
  ASSERT_TRUE(write_file_atomic(run_dir + "/view.log", "").ok());
  std::filesystem::remove(run_dir + "/summary.json");
  EXPECT_NE(contents_of(run_dir), before);
  files.take_back();
  EXPECT_EQ(contents_of(run_dir), before);
}

TEST(StartFiles, GivesAFolderBackThatItHasSetAsideAndElseLetsItGo) {
  const TemporaryFolder folder;
  const std::string run_dir = folder / "run";
  put(run_dir + "/trace/member-1.json");
  const std::set<std::string> before = everything_in(folder.path());
  {
    StartFiles files(run_dir, run_dir + "/token");
    files.set_aside(run_dir + "/trace");
    EXPECT_FALSE(fs::exists(run_dir + "/trace"));
    files.take_back();
  }
  EXPECT_EQ(everything_in(folder.path()), before);
  {
    StartFiles files(run_dir, run_dir + "/token");
    files.set_aside(run_dir + "/trace");
    put(run_dir + "/trace/member-2.json");
  }
  EXPECT_EQ(everything_in(run_dir), (std::set<std::string>{"trace", "trace/member-2.json"}));
}

TEST(StartFiles, KeepsNoContentsOfFilesThatTheCommandMade) {
  const TemporaryFolder folder;
  const std::string run_dir = folder / "run";
  StartFiles files(run_dir, run_dir + "/token");
  put(run_dir + "/view.log");
  files.keep_contents();
  write_start(run_dir);
  files.take_back();
  EXPECT_EQ(everything_in(folder.path()), std::set<std::string>{"run"});
}

TEST(StartFiles, TakesBackATokenThatItMadeElsewhere) {
  const TemporaryFolder folder;
  StartFiles files(folder / "run", folder / "token");
  put(folder / "token");
  files.take_back();
  EXPECT_EQ(everything_in(folder.path()), std::set<std::string>{});
}

}  // namespace
}  // namespace mayfly::engine
