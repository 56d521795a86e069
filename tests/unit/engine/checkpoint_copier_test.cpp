#include "engine/run/checkpoint_copier.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>

#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

using ::testing::HasSubstr;

TEST(CheckpointCopier, ACheckpointThatCannotBeReadAsAWholeIsNotCopied) {
  const test_support::TemporaryFolder folder;
  const std::string checkpoint = folder / "step-3";
  std::filesystem::create_directories(checkpoint + "/model.safetensors");  // no file, so no copy
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

}  // namespace
}  // namespace mayfly::engine
