#include "nn/cuda/device_facts.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "nn/cuda/device_claim.hpp"
#include "nn/cuda/memory_fit.hpp"

namespace mayfly::nn::cuda {
namespace {

DeviceFacts good() {
  DeviceFacts facts;
  facts.driver_cuda = 13000;
  facts.built_cuda = 13000;
  facts.found_cudnn = 91900;
  facts.devices = 2;
  facts.device = 1;
  facts.capability = 90;
  facts.name = "NVIDIA H200";
  facts.bus = "0000:1a:00.0";
  return facts;
}

void expect_refused(const DeviceFacts& facts, const std::string& words) {
  const Result<void> verdict = judge(facts);
  ASSERT_FALSE(verdict.ok()) << words;
  EXPECT_EQ(verdict.error().code, Errc::kUnsupported);
  EXPECT_NE(verdict.error().detail.find(words), std::string::npos) << verdict.error().detail;
  EXPECT_EQ(verdict.error().detail.find('\n'), std::string::npos);
}

TEST(DeviceFacts, WhatIsMissingIsSaidInOneLine) {
  EXPECT_TRUE(judge(good()).ok());
  DeviceFacts facts = good();
  facts.driver_cuda = 0;
  expect_refused(facts, "no NVIDIA driver");
  facts = good();
  facts.driver_cuda = 12080;
  expect_refused(facts, "it supports CUDA 12.8, this build needs 13.0");
  facts = good();
  facts.devices = 0;
  expect_refused(facts, "finds no GPU");
  facts = good();
  facts.device_error = "all of them are on fire";
  expect_refused(facts, "all of them are on fire");
  facts = good();
  facts.device = 2;
  expect_refused(facts, "there is no GPU 2: this machine shows 2, counted from 0");
  facts = good();
  facts.capability = 75;
  expect_refused(facts, "compute capability 7.5, needed is 8.0");
  facts = good();
  facts.found_cudnn = 90700;
  expect_refused(facts, "cuDNN is too old: 9.7.0 was found, needed is 9.11.0");
}

TEST(DeviceFacts, TheIdentityHasWhatBitsDependOn) {
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
  EXPECT_TRUE(check_fit(model, 64, {}, plan, plan.memory.total()).ok());
  const std::size_t third = plan.memory.total() / 3;
  const Result<void> verdict = check_fit(model, 64, {}, plan, third);
  ASSERT_FALSE(verdict.ok());
  EXPECT_EQ(verdict.error().code, Errc::kUnsupported);
  const std::uint32_t fits = largest_fitting(model, 64, {}, third);
  EXPECT_NE(verdict.error().detail.find("a microbatch of " + std::to_string(fits) + " would fit"),
            std::string::npos)
      << verdict.error().detail;
  EXPECT_GT(fits, 10U);
  EXPECT_LE(make_step_plan(model, fits, {}).memory.total(), third);
  EXPECT_GT(make_step_plan(model, fits + 1, {}).memory.total(), third);
  EXPECT_NE(check_fit(model, 64, {}, plan, 1000).error().detail.find("not even"),
            std::string::npos);
}

}  // namespace
}  // namespace mayfly::nn::cuda
