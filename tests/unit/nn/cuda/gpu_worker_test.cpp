// What decides whether a worker can have a GPU, and which.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "nn/cuda/device_choice.hpp"

namespace mayfly::nn::cuda {
namespace {

CudnnFacts good() {
  return {.gpu = {.driver_cuda = 13000,
                  .built_cuda = 13000,
                  .devices = 2,
                  .device_error = "",
                  .device = 1,
                  .capability = 90,
                  .name = "NVIDIA H200",
                  .bus = "0000:1a:00.0"},
          .found_cudnn = 91900};
}

void expect_refused(const CudnnFacts& facts, const std::string& words) {
  const Result<void> verdict = judge(facts);
  ASSERT_FALSE(verdict.ok()) << words;
  EXPECT_EQ(verdict.error().code, Errc::kUnsupported);
  EXPECT_NE(verdict.error().detail.find(words), std::string::npos) << verdict.error().detail;
  EXPECT_EQ(verdict.error().detail.find('\n'), std::string::npos);
}

TEST(CudnnFacts, WhatIsMissingIsSaidInOneLine) {
  EXPECT_TRUE(judge(good()).ok());
  CudnnFacts facts = good();
  facts.found_cudnn = 90700;
  expect_refused(facts, "cuDNN is too old: 9.7.0 was found, needed is 9.11.0");
  facts.gpu.capability = 75;
  expect_refused(facts, "compute capability 7.5, needed is 8.0");
}

TEST(CudnnFacts, TheIdentityHasWhatBitsDependOn) {
  EXPECT_EQ(identity_of(good()), "NVIDIA H200, sm_90, cuDNN 9.19.0");
}

TEST(DeviceClaim, OneAtATimeAndFreeAgainAfterwards) {
  const std::string folder = testing::TempDir();
  {
    const Result<DeviceClaim> first = DeviceClaim::take(folder, "0000:01:00.0");
    ASSERT_TRUE(first.ok()) << first.error().detail;
    const Result<DeviceClaim> second = DeviceClaim::take(folder, "0000:01:00.0");
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, Errc::kRefused);
    EXPECT_TRUE(DeviceClaim::take(folder, "0000:02:00.0").ok());
  }
  EXPECT_TRUE(DeviceClaim::take(folder, "0000:01:00.0").ok());
  EXPECT_EQ(DeviceClaim::take(folder + "/none/such", "0000:01:00.0").error().code, Errc::kIo);
}

TEST(MemoryFit, WhatIsTooLargeIsToldWhatWouldFit) {
  const Model model = make_usual_model("resnet20").value();
  const StepPlan plan = make_step_plan(model, 64, {});
  EXPECT_TRUE(check_fit(model, 64, {}, plan, {plan.memory.total()}).ok());
  const std::size_t third = plan.memory.total() / 3;
  const Result<void> verdict = check_fit(model, 64, {}, plan, {third});
  ASSERT_FALSE(verdict.ok());
  EXPECT_EQ(verdict.error().code, Errc::kUnsupported);
  const std::uint32_t fits = largest_fitting(model, 64, {}, third);
  EXPECT_NE(verdict.error().detail.find("a microbatch of " + std::to_string(fits) + " would fit"),
            std::string::npos)
      << verdict.error().detail;
  EXPECT_GT(fits, 10U);
  EXPECT_LE(make_step_plan(model, fits, {}).memory.total(), third);
  EXPECT_GT(make_step_plan(model, fits + 1, {}).memory.total(), third);
  EXPECT_NE(check_fit(model, 64, {}, plan, {1000}).error().detail.find("not even"),
            std::string::npos);
}

TEST(MemoryFit, SumsOfGradientsTakeTheirPart) {
  const Model model = make_usual_model("resnet20").value();
  const StepPlan plan = make_step_plan(model, 64, {});
  const std::size_t sums = plan.memory.total() / 2;
  const std::size_t both = plan.memory.total() + sums;
  EXPECT_TRUE(check_fit(model, 64, {}, plan, {both, sums}).ok());
  const Result<void> verdict = check_fit(model, 64, {}, plan, {both - 1, sums});
  ASSERT_FALSE(verdict.ok());
  EXPECT_EQ(verdict.error().detail.find('\n'), std::string::npos);
  EXPECT_NE(verdict.error().detail.find("for sums of gradients"), std::string::npos)
      << verdict.error().detail;
  const std::uint32_t fits = largest_fitting(model, 64, {}, both - 1 - sums);
  EXPECT_NE(verdict.error().detail.find("a microbatch of " + std::to_string(fits) + " would fit"),
            std::string::npos)
      << verdict.error().detail;
  EXPECT_NE(check_fit(model, 64, {}, plan, {sums - 1, sums}).error().detail.find("not even"),
            std::string::npos);
}

}  // namespace
}  // namespace mayfly::nn::cuda
