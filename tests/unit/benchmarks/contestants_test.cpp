#include "benchmarks/allreduce/contestants.hpp"

#include <gmock/gmock.h>

namespace mayfly::bench {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(Contestants, OwnRanksAreThisProgramWithAHiddenCommand) {
  const Contestant unix = find_contestant("unix", false, 4, "/opt/mayfly").value();
  EXPECT_EQ(unix.name, "mayfly-unix");
  EXPECT_FALSE(unix.is_peer);
  EXPECT_FALSE(unix.launcher);
  EXPECT_EQ(unix.command, (std::vector<std::string>{"/opt/mayfly", "bench-rank", "unix"}));
}

TEST(Contestants, PeerThatWasNotBuiltIsUnsupportedAndNamed) {
  const Result<Contestant> gloo = find_contestant("gloo", true, 4, "/nonexistent/mayfly");
  ASSERT_FALSE(gloo.ok());
  EXPECT_EQ(gloo.error().code, Errc::kUnsupported);
  EXPECT_THAT(gloo.error().detail, HasSubstr("/nonexistent/mayfly-peer-gloo"));
}

TEST(Contestants, OneLauncherStartsAllRanksOfMpi) {
  const Result<Contestant> found = find_contestant("mpi-tcp", false, 4, "/opt/mayfly");
  if (!found.ok()) {
    GTEST_SKIP() << found.error().detail;
  }
  const Contestant& mpi = found.value();
  EXPECT_EQ(mpi.name, "mayfly-mpi-tcp");
  EXPECT_TRUE(mpi.launcher);
  EXPECT_EQ(mpi.command.front(), "mpirun");
  EXPECT_THAT(mpi.command, Contains("tcp,self"));
  EXPECT_EQ(mpi.command.back(), "mpi");
  EXPECT_THAT(mpi.environment,
              Contains(std::pair<std::string, std::string>("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")));
}

}  // namespace
}  // namespace mayfly::bench
