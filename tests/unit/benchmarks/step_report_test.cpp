#include "benchmarks/step/step_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <sstream>

namespace mayfly::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Two threads, ten microbatches of 16 each, on a machine that does 100 GFLOP/s per core.
StepBenchResult measured() {
  StepBenchResult result;
  result.model = "resnet20";
  result.dtype = "fp32";
  result.isa = "avx2";
  result.conv_kernels = "auto-1";
  result.image_size = 32;
  result.classes = 10;
  result.batch = 16;
  result.global_batch = 32;
  result.threads = {{160, 2.0, 1.0}, {160, 4.0, 3.0}};
  result.machine = {100, 20};
  result.cost.layers = {{{1e9, 0}, {2e9, 0}}};
  result.cost.total = {3e9, 1e9};
  return result;
}

StepBenchResult measured_by_layer() {
  StepBenchResult result = measured();
  const nn::Model model = nn::make_usual_model("resnet20").value();
  result.kernels = {{"conv1.weight", model.stem, nn::cpu::ConvKernel::kDirect}};
  result.times.layers = {{1.0, 2.0}};
  result.times.outside = 1.0;
  return result;
}

std::vector<boost::json::object> lines_of(const std::string& text) {
  std::vector<boost::json::object> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(boost::json::parse(line).as_object());
  }
  return lines;
}

TEST(BenchReport, RatesArePerSecondPerCoreAndPerCpuSecond) {
  const StepRates rates = rates_of(measured());
  EXPECT_DOUBLE_EQ(rates.images_per_second, 120);
  EXPECT_DOUBLE_EQ(rates.images_per_second_per_core, 60);
  EXPECT_DOUBLE_EQ(rates.images_per_cpu_second, 80);
}

TEST(BenchReport, FractionsAreOfWhatTheMachineCan) {
  const StepRates rates = rates_of(measured());
  // 20 microbatches of 3 GFLOP in 4 CPU-seconds; 7.5 microbatches of 1 GB per second.
  EXPECT_DOUBLE_EQ(rates.gflops_per_core, 15);
  EXPECT_DOUBLE_EQ(rates.peak_fraction, 0.15);
  EXPECT_DOUBLE_EQ(rates.gigabytes_per_second, 7.5);
  EXPECT_DOUBLE_EQ(rates.bandwidth_fraction, 0.375);
}

TEST(BenchReport, WithoutLayersThereIsOneLine) {
  const auto lines = lines_of(to_json_lines(measured()));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].at("kind").as_string(), "step");
  EXPECT_EQ(lines[0].at("threads").as_int64(), 2);
  EXPECT_EQ(lines[0].at("global_batch").as_int64(), 32);
  EXPECT_DOUBLE_EQ(lines[0].at("images_per_cpu_second").to_number<double>(), 80);
  EXPECT_THAT(to_text(measured()), Not(HasSubstr("microbatch           ")));
}

TEST(BenchReport, LayersHaveTheirTimePerMicrobatchAndTheirShare) {
  const auto lines = lines_of(to_json_lines(measured_by_layer()));
  ASSERT_EQ(lines.size(), 7u);
  const auto& layer = lines[1];
  EXPECT_EQ(layer.at("kind").as_string(), "layer");
  EXPECT_EQ(layer.at("layer").as_string(), "conv1.weight");
  EXPECT_EQ(layer.at("shape").as_string(), "3x3 3->16 32x32");
  EXPECT_EQ(layer.at("kernel").as_string(), "direct");
  EXPECT_DOUBLE_EQ(layer.at("forward_ms").to_number<double>(), 50);
  EXPECT_DOUBLE_EQ(layer.at("backward_ms").to_number<double>(), 100);
  EXPECT_DOUBLE_EQ(layer.at("forward_gflops").to_number<double>(), 20);
  EXPECT_DOUBLE_EQ(layer.at("peak_fraction").to_number<double>(), 0.2);
  EXPECT_DOUBLE_EQ(layer.at("step_share").to_number<double>(), 0.75);
}

TEST(BenchReport, WhatIsNoLayerIsListedToo) {
  double share = 0;
  for (const auto& line : lines_of(to_json_lines(measured_by_layer()))) {
    if (line.at("kind").as_string() != "step") {
      share += line.at("step_share").to_number<double>();
    }
  }
  EXPECT_DOUBLE_EQ(share, 1);
  EXPECT_THAT(to_text(measured_by_layer()), HasSubstr("gradient sums and update"));
}

}  // namespace
}  // namespace mayfly::bench
