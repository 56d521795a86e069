#include "benchmarks/step/step_bench.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mayfly::bench {
namespace {

using ::testing::HasSubstr;

std::uint32_t global_batch(const char* model, std::uint32_t threads, std::uint32_t batch,
                           std::uint32_t asked = 0) {
  StepBenchOptions options;
  options.threads = threads;
  options.batch = batch;
  options.global_batch = asked;
  const auto resolved = resolve_global_batch(options, nn::make_usual_model(model).value());
  EXPECT_TRUE(resolved.ok()) << resolved.error().detail;
  return resolved.ok() ? resolved.value() : 0;
}

TEST(BenchStep, CifarNetworksAreUpdatedPer128ImagesOfAllThreads) {
  EXPECT_EQ(global_batch("resnet20", 1, 16), 128u);
  EXPECT_EQ(global_batch("resnet20", 2, 16), 128u);
  EXPECT_EQ(global_batch("resnet20", 3, 16), 96u);
  EXPECT_EQ(global_batch("resnet20", 2, 256), 512u);
}

TEST(BenchStep, ImagenetNetworksAreUpdatedPerMicrobatchOfEachThread) {
  EXPECT_EQ(global_batch("resnet18", 1, 16), 16u);
  EXPECT_EQ(global_batch("resnet50", 2, 8), 16u);
}

TEST(BenchStep, AGlobalBatchThatWasAskedForIsTakenOrRefused) {
  EXPECT_EQ(global_batch("resnet20", 2, 16, 64), 64u);
  StepBenchOptions options;
  options.threads = 2;
  options.global_batch = 48;
  const auto refused = resolve_global_batch(options, nn::make_usual_model("resnet20").value());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::kInvalidInput);
  EXPECT_THAT(refused.error().detail, HasSubstr("48 is not a multiple of 32"));
}

}  // namespace
}  // namespace mayfly::bench
