#include "cloud_hooks/core/machine_gpu.hpp"

#include <gtest/gtest.h>

namespace mayfly::cloud_hooks {
namespace {

TEST(MachineGpu, OfComputeEngineIsInTheTypeOrAddedToIt) {
  EXPECT_EQ(gpu_of_machine("a3-highgpu-8g")->name, "NVIDIA H100");
  EXPECT_EQ(gpu_of_machine("a3-ultragpu-8g")->name, "NVIDIA H200");
  EXPECT_EQ(gpu_of_machine("a2-ultragpu-1g")->capability, 80);
  EXPECT_EQ(gpu_of_machine("g2-standard-8")->capability, 89);
  EXPECT_EQ(gpu_of_machine("n1-standard-8+nvidia-tesla-t4:1")->capability, 75);
  EXPECT_EQ(gpu_of_machine("n1-standard-8+nvidia-tesla-v100:2")->capability, 70);
}

TEST(MachineGpu, OfEc2IsThatOfTheFamily) {
  EXPECT_EQ(gpu_of_machine("p3.2xlarge")->capability, 70);
  EXPECT_EQ(gpu_of_machine("p4d.24xlarge")->name, "NVIDIA A100");
  EXPECT_EQ(gpu_of_machine("p5en.48xlarge")->name, "NVIDIA H200");
  EXPECT_EQ(gpu_of_machine("p6-b200.48xlarge")->capability, 100);
  EXPECT_EQ(gpu_of_machine("g5.xlarge")->capability, 86);
}

TEST(MachineGpu, MachinesWithoutOneAreKnownToo) {
  for (const char* type : {"n1-standard-8", "e2-micro", "c3-highcpu-22", "m5.large", "c7gn.xlarge",
                           "hpc7a.96xlarge", "u-6tb1.112xlarge", "trn1.2xlarge", "g4ad.xlarge"}) {
    const auto gpu = gpu_of_machine(type);
    ASSERT_TRUE(gpu.has_value()) << type;
    EXPECT_EQ(gpu->capability, 0) << type;
    EXPECT_TRUE(gpu->name.empty()) << type;
  }
}

TEST(MachineGpu, WhatIsNotInTheTableMayHaveAny) {
  for (const char* type : {"", "p9.48xlarge", "a9-highgpu-8g", "g99-standard-4", "small", "gpu-box",
                           "n1-standard-8+nvidia-x900:1", ".", "-", "+"}) {
    EXPECT_FALSE(gpu_of_machine(type).has_value()) << type;
  }
}

}  // namespace
}  // namespace mayfly::cloud_hooks
