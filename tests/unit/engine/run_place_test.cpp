#include "engine/membership/run_place.hpp"

#include <gmock/gmock.h>

#include <filesystem>

#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

TEST(RunPlace, ADirectoryThatNobodyNamedNamesTheModelAndIsNew) {
  const test_support::TemporaryFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  JobConfig first;
  resolve_defaults(first);
  std::filesystem::create_directories(first.run_dir);
  JobConfig second;
  resolve_defaults(second);
  std::filesystem::current_path(before);
  EXPECT_THAT(first.run_dir, testing::HasSubstr("runs/resnet20-"));
  EXPECT_NE(first.run_dir, second.run_dir);
}

}  // namespace
}  // namespace mayfly::engine
