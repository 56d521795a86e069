#include "engine/transfers/checkpoint_copier.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <string>
#include <thread>

#include "engine/run/checkpoint_store.hpp"
#include "nn/checkpoint.hpp"
#include "nn/model.hpp"
#include "nn/model_state.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

using ::testing::HasSubstr;

TEST(CheckpointCopier, ACheckpointThatCannotBeReadAsAWholeIsNotCopied) {
  const test_support::TemporaryFolder folder;
  const std::string checkpoint = folder / "step-3";
  std::filesystem::create_directories(checkpoint + "/model.safetensors");  // a folder, not a file
  std::ofstream(checkpoint + "/manifest.json") << "{}";
  JobConfig config;
  config.run_dir = folder.path();
  config.checkpoint_to = "true {}";
  std::promise<std::string> outcome;
  std::atomic<bool> is_told = false;
  const auto tell = [&](const std::string& text) {
    if (!is_told.exchange(true)) {
      outcome.set_value(text);
    }
  };
  CheckpointCopier copier(
      config, {[&](Step, const std::string& where, Duration) { tell("copied: " + where); }, tell});
  copier.copy(Step{3}, checkpoint);
  EXPECT_THAT(outcome.get_future().get(), HasSubstr("cannot copy " + checkpoint));
}

TEST(CheckpointCopier, ADamagedCheckpointIsNotCopiedIntoAFolder) {
  const test_support::TemporaryFolder folder;
  const nn::Model model = nn::make_model("resnet20", 10).value();
  nn::CheckpointFiles files =
      nn::encode_checkpoint(model, nn::make_initial_state(model, 7, 0, 0), 7, {});
  files[nn::kModelFile].back() ^= std::byte{1};
  const std::string checkpoint = save_checkpoint(folder / "here", files, Step{0}, 1).value();
  JobConfig config;
  config.run_dir = folder / "run";
  config.checkpoint_to = folder / "there";
  std::promise<std::string> outcome;
  std::atomic<bool> is_told = false;
  const auto tell = [&](const std::string& text) {
    if (!is_told.exchange(true)) {
      outcome.set_value(text);
    }
  };
  CheckpointCopier copier(
      config, {[&](Step, const std::string& where, Duration) { tell("copied: " + where); }, tell});
  copier.copy(Step{0}, checkpoint);
  EXPECT_THAT(outcome.get_future().get(), HasSubstr(nn::kModelFile));
  EXPECT_FALSE(std::filesystem::exists(folder / "there/run/checkpoints/step-0"));
}

TEST(CheckpointCopier, WhatAKilledProcessLeftForItsCommandIsRemoved) {
  const test_support::TemporaryFolder folder;
  const std::string checkpoint = folder / "step-3";
  std::filesystem::create_directories(checkpoint);
  std::ofstream(checkpoint + "/manifest.json") << "{}";
  std::filesystem::create_directories(folder / "run/.outgoing/step-2");
  std::ofstream(folder / "run/.outgoing/step-2/manifest.json") << "{}";
  JobConfig config;
  config.run_dir = folder / "run";
  config.checkpoint_to = "test -e {}/manifest.json";
  CheckpointCopier copier(config, {[](Step, const std::string&, Duration) {}, [](const auto&) {}});
  copier.copy(Step{3}, checkpoint);
  EXPECT_TRUE(copier.finish().ok());
  EXPECT_FALSE(std::filesystem::exists(folder / "run/.outgoing"));
}

TEST(CheckpointCopier, AfterAFallBackAnEarlierStepReplacesOneThatCannotBeCopied) {
  const test_support::TemporaryFolder folder;
  for (const char* name : {"step-2", "step-3"}) {
    std::filesystem::create_directories(folder / name);
    std::ofstream((folder / name) + "/manifest.json") << "{}";
  }
  JobConfig config;
  config.run_dir = folder.path();
  config.checkpoint_to = "test {name} = step-2  # {}";
  std::promise<void> has_failed;
  std::atomic<bool> is_told = false;
  std::promise<Step> copied;
  CheckpointCopier copier(config,
                          {[&](Step step, const std::string&, Duration) { copied.set_value(step); },
                           [&](const std::string&) {
                             if (!is_told.exchange(true)) {
                               has_failed.set_value();
                             }
                           }});
  copier.copy(Step{3}, folder / "step-3");
  has_failed.get_future().wait();
  copier.copy(Step{2}, folder / "step-2");
  EXPECT_EQ(copied.get_future().get(), Step{2});
  EXPECT_TRUE(copier.finish().ok());
}

TEST(CheckpointCopier, AnotherStateOfAStepThatIsBeingCopiedIsCopiedToo) {
  const test_support::TemporaryFolder folder;
  const std::string checkpoint = folder / "step-3";
  const std::string copies = folder / "copies";
  std::filesystem::create_directories(checkpoint);
  std::ofstream(checkpoint + "/manifest.json") << "first ";
  JobConfig config;
  config.run_dir = folder / "run";
  config.checkpoint_to = "cat {}/manifest.json >> " + copies + "; while [ ! -e " + (folder / "go") +
                         " ]; do sleep 0.01; done";
  CheckpointCopier copier(config, {[](Step, const std::string&, Duration) {}, [](const auto&) {}});
  copier.copy(Step{3}, checkpoint);
  while (!std::filesystem::exists(copies)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::filesystem::rename(checkpoint, folder / "undone");  // as save_checkpoint() replaces it
  std::filesystem::create_directories(checkpoint);
  std::ofstream(checkpoint + "/manifest.json") << "second";
  copier.copy(Step{3}, checkpoint);
  std::ofstream(folder / "go") << "";
  EXPECT_TRUE(copier.finish().ok());
  std::ifstream file(copies);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "first second");
}

}  // namespace
}  // namespace mayfly::engine
