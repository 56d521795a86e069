#include "benchmarks/engines/engines_bench.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/json.hpp>

namespace mayfly::bench {
namespace {

using nn::cuda::ConvKey;
using nn::cuda::EngineTiming;

const ConvKey kKey{.dtype = nn::Dtype::kBf16,
                   .shape = {.images = 64,
                             .in_channels = 64,
                             .out_channels = 64,
                             .kernel = 3,
                             .stride = 1,
                             .padding = 1,
                             .input_size = 56,
                             .output_size = 56},
                   .pass = nn::cuda::ConvPass::kWeightGradient};

TEST(BenchEngines, ALineHasTheChoiceAndWhatItReplaces) {
  const std::vector<EngineTiming> timings = {{{1, {}}, {30, 30, 31}, true},
                                             {{2, {{4, 0}}}, {12, 12, 90}, true}};
  const std::string line = engine_line(kKey, timings, true);
  ASSERT_EQ(line.find('\n'), line.size() - 1);
  const boost::json::object object = boost::json::parse(line).as_object();
  EXPECT_EQ(object.at("kind"), "engine");
  EXPECT_EQ(object.at("convolution"),
            "weight gradient of 64 x 64 x 56 x 56 -> 64, 3x3 stride 1 in bf16");
  EXPECT_EQ(object.at("engine"), "eng2_k4=0");
  EXPECT_EQ(object.at("first"), "eng1");
  EXPECT_DOUBLE_EQ(object.at("us").to_number<double>(), 12);
  EXPECT_THAT(engine_line(kKey, timings, false),
              testing::HasSubstr("eng2_k4=0 in 12.0 us, of 2 engines; cuDNN's first takes 30.0"));
}

TEST(BenchEngines, ALineOfAFusedPassComparesItWithItsParts) {
  ConvKey key = kKey;
  key.dtype = nn::Dtype::kFp16;
  key.pass = nn::cuda::ConvPass::kForwardSums;
  const std::vector<EngineTiming> timings = {
      {{nn::cuda::EngineName::kUnfused, {}}, {30, 30, 31}, true},
      {{2, {{4, 0}}}, {12, 12, 90}, true},
      {{3, {}}, {2, 2, 2}, false}};
  const boost::json::object object =
      boost::json::parse(engine_line(key, timings, true)).as_object();
  EXPECT_EQ(object.at("first"), "unfused");
  EXPECT_EQ(object.at("engine"), "eng2_k4=0");
  EXPECT_EQ(object.at("fused"), true);
  EXPECT_EQ(object.at("wrong"), 1);
  EXPECT_THAT(engine_line(key, timings, false),
              testing::HasSubstr("eng2_k4=0 in 12.0 us, of 3 engines; unfused it takes 30.0"));
}

TEST(BenchEngines, WithoutItsModuleOrAGpuItEndsWithTwoAndWritesNothing) {
  EnginesBenchOptions options;
  options.output = testing::TempDir() + "no-engine-table.tsv";
  for (const char* const device : {"cuda:1000", "cpu"}) {
    options.device = device;
    EXPECT_EQ(bench_engines(options), 2);
  }
  EXPECT_NE(::access(options.output.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace mayfly::bench
