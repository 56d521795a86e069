#include "engine/program/program_worker.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

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

}  // namespace
}  // namespace mayfly::engine
