#include "benchmarks/step/gpu_step_bench.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace mayfly::bench {
namespace {

using ::testing::HasSubstr;

GpuStepResult measured() {
  GpuStepResult result;
  result.model = "resnet50";
  result.dtype = "bf16";
  result.device = "cuda, NVIDIA H200, sm_90, cuDNN 9.19.0";
  result.image_size = 224;
  result.classes = 1000;
  result.batch = 64;
  result.global_batch = 256;
  result.sums_on_gpu = true;
  result.images_on_gpu = true;
  result.updates = 10;
  result.seconds = 0.5;
  return result;
}

TEST(BenchGpuStep, ItsLineIsOneJsonObject) {
  const std::string line = to_json_line(measured());
  ASSERT_EQ(line.find('\n'), line.size() - 1);
  const boost::json::object object = boost::json::parse(line).as_object();
  EXPECT_EQ(object.at("kind"), "gpu_step");
  EXPECT_EQ(object.at("device"), "cuda, NVIDIA H200, sm_90, cuDNN 9.19.0");
  EXPECT_EQ(object.at("reduction"), "exact");
  EXPECT_EQ(object.at("sums"), "gpu");
  EXPECT_EQ(object.at("images"), "gpu");
  EXPECT_DOUBLE_EQ(object.at("images_per_second").to_number<double>(), 5120);
  EXPECT_DOUBLE_EQ(object.at("update_ms").to_number<double>(), 50);
}

TEST(BenchGpuStep, PeopleAreToldTheSame) {
  EXPECT_THAT(to_text(measured()), HasSubstr("5120.0 images/s, 50.000 ms an update"));
  EXPECT_THAT(to_text(measured()), HasSubstr("exact sums on the GPU, images on the GPU"));
}

TEST(BenchGpuStep, ItSaysWhichSumsItTook) {
  GpuStepResult result = measured();
  result.exact = false;
  EXPECT_THAT(to_json_line(result), HasSubstr(R"("reduction": "fp32")"));
  EXPECT_THAT(to_text(result), HasSubstr("fp32 sums on the GPU"));
}

TEST(BenchGpuStep, WithoutItsModuleOrAGpuItEndsWithTwo) {
  StepBenchOptions options;
  options.device = "cuda:1000";
  EXPECT_EQ(bench_step(options), 2);
}

}  // namespace
}  // namespace mayfly::bench
