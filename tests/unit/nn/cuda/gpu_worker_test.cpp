// The decisions whether a worker can have a GPU, and which one.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

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
                  .uuid = "1a"},
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

TEST(CudnnFacts, KindsAreThoseOfUsableGpus) {
  CudnnFacts old = good();
  old.gpu.capability = 70;
  CudnnFacts other = good();
  other.gpu.name = "NVIDIA A100";
  other.gpu.capability = 80;
  EXPECT_EQ(kinds_of({old, good(), good()}).value(), std::vector{identity_of(good())});
  EXPECT_EQ(kinds_of({good(), other}).value(),
            (std::vector{identity_of(good()), identity_of(other)}));
  EXPECT_EQ(kinds_of({old, old}).error().detail, judge(old).error().detail);
}

/// GPUs 0, 1, ... with a separate folder of claims.
class DeviceClaims : public testing::Test {
 protected:
  DeviceClaims() { std::filesystem::create_directories(folder_); }
  ~DeviceClaims() override { std::filesystem::remove_all(folder_); }

  static std::vector<CudnnFacts> gpus(int count) {
    std::vector<CudnnFacts> all;
    for (int device = 0; device < count; ++device) {
      all.push_back(good());
      all.back().gpu.devices = count;
      all.back().gpu.device = device;
      all.back().gpu.uuid = "gpu" + std::to_string(device);
    }
    return all;
  }

  const std::string folder_ = testing::TempDir() + "claims-" + std::to_string(::getpid());
};

TEST_F(DeviceClaims, OneAtATimeAndFreeAgainAfterwards) {
  {
    const Result<DeviceClaim> first = DeviceClaim::take(folder_, "a");
    ASSERT_TRUE(first.ok()) << first.error().detail;
    const Result<DeviceClaim> second = DeviceClaim::take(folder_, "a");
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, Errc::kRefused);
    EXPECT_TRUE(DeviceClaim::take(folder_, "b").ok());
  }
  EXPECT_TRUE(DeviceClaim::take(folder_, "a").ok());
  EXPECT_EQ(DeviceClaim::take(folder_ + "/none/such", "a").error().code, Errc::kIo);
}

TEST_F(DeviceClaims, OtherUsersMayLockTheFile) {
  const mode_t usual = ::umask(077);
  EXPECT_TRUE(DeviceClaim::take(folder_, "a").ok());
  ::umask(usual);
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(folder_ + "/mayfly-gpu-a.lock").permissions(),
            perms::owner_read | perms::owner_write | perms::group_read | perms::others_read);
}

TEST_F(DeviceClaims, TheFirstFreeOneIsTaken) {
  std::vector<CudnnFacts> all = gpus(4);
  all[0].gpu.capability = 70;
  std::filesystem::create_directory(folder_ + "/mayfly-gpu-gpu1.lock");  // cannot be opened
  const Result<ChosenDevice> first = claim_free(folder_, all);
  const Result<ChosenDevice> second = claim_free(folder_, all);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first.value().number, 2);
  EXPECT_EQ(second.value().number, 3);
  EXPECT_EQ(claim_free(folder_, all).error().code, Errc::kIo) << "what is wrong with GPU 1";
  std::filesystem::remove(folder_ + "/mayfly-gpu-gpu1.lock");
  EXPECT_EQ(claim_free(folder_, all).value().number, 1);
}

TEST_F(DeviceClaims, AllInUseIsRefused) {
  const Result<ChosenDevice> only = claim_free(folder_, gpus(1));
  const Result<ChosenDevice> none = claim_free(folder_, gpus(1));
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Errc::kRefused);
  EXPECT_NE(none.error().detail.find("all 1 GPUs"), std::string::npos) << none.error().detail;
}

int number_among(const std::map<std::string, std::string>& environment) {
  return local_number([&environment](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(LocalNumber, IsTheInnermostLaunchers) {
  EXPECT_EQ(number_among({}), -1);
  EXPECT_EQ(number_among({{"LOCAL_RANK", "3"}}), 3);
  EXPECT_EQ(number_among({{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}}), 2);
  EXPECT_EQ(number_among({{"SLURM_LOCALID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}}), 5);
  EXPECT_EQ(number_among({{"MPI_LOCALRANKID", "4"},  // mpiexec, whose daemons srun has started
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_STEP_NUM_TASKS", "2"}}),
            4);
}

TEST(LocalNumber, IsNoneForWhatASingleTaskStarts) {
  EXPECT_EQ(number_among({{"SLURM_LOCALID", "0"}}), -1) << "a batch script";
  EXPECT_EQ(number_among({{"SLURM_LOCALID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}), -1);
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
