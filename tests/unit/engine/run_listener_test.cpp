#include "engine/run/run_listener.hpp"

#include <gmock/gmock.h>

#include <cstdint>

#include "engine/run/summary.hpp"

namespace mayfly::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Summary of_steps(std::uint64_t steps, std::uint64_t retried) {
  Summary summary;
  summary.steps = steps;
  summary.retried_steps = retried;
  return summary;
}

TEST(LastLines, SayThatMostStepsWereComputedMoreThanOnce) {
  EXPECT_THAT(to_text(of_steps(40, 39)), HasSubstr("39 of 40 steps were computed more than once"));
}

TEST(LastLines, DoNotSpeakOfTheFewStepsThatFindTheRange) {
  EXPECT_THAT(to_text(of_steps(3, 2)), Not(HasSubstr("more than once")));
  EXPECT_THAT(to_text(of_steps(500, 12)), Not(HasSubstr("more than once")));
}

TEST(LastLines, NameNoDataSetIfNoProgramHasNamedOne) {
  Summary summary;
  summary.model = "program";
  EXPECT_THAT(to_text(summary), HasSubstr("program, seed"));
  summary.data = "TensorDataset";
  EXPECT_THAT(to_text(summary), HasSubstr("program on TensorDataset, seed"));
}

}  // namespace
}  // namespace mayfly::engine
