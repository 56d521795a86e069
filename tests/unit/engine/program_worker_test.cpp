#include "engine/program/program_worker.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

TEST(ProgramWorkerDeathTest, NoConnectionBecomesTheStandardInputOrOutputOfAProgram) {
  EXPECT_EXIT(
      {
        ::close(STDIN_FILENO);
        const bool is_absent = ProgramWorker::open({}).error().code == Errc::kNotFound;
        std::exit(is_absent && ::fcntl(STDIN_FILENO, F_GETFD) >= 0 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(ProgramWorker, FindsItsFilesAlsoFromAnotherWorkingFolder) {
  const test_support::TemporaryFolder folder;
  std::ofstream(folder / "config.toml") << "model = \"program\"\nrun_dir = \"runs/a\"\n";
  const auto worker = ProgramWorker::open({{kJobFileVariable, folder / "config.toml"}});
  ASSERT_TRUE(worker.ok()) << worker.error().detail;
  const std::string run_dir = std::filesystem::current_path() / "runs" / "a";
  EXPECT_EQ(worker.value()->settings().run_dir, run_dir);
  EXPECT_EQ(worker.value()->settings().token_file, run_dir + "/token");
}

}  // namespace
}  // namespace mayfly::engine
