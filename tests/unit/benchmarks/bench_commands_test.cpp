#include <gmock/gmock.h>

#include <set>

#include "tests/unit/benchmarks/bench_fixture.hpp"

namespace mayfly::bench {
namespace {

using ::testing::HasSubstr;

TEST_F(BenchTest, TheBenchmarkIsNamedByTheFirstWord) {
  EXPECT_EQ(run({}), 2);
  EXPECT_THAT(err(), HasSubstr("needs the name of a benchmark"));
  EXPECT_EQ(run({"nothing-like-it"}), 2);
  EXPECT_THAT(err(), HasSubstr("unknown benchmark"));
  EXPECT_EQ(run({"recovry"}), 2);
  EXPECT_THAT(err(), HasSubstr("did you mean 'recovery'?"));
}

TEST_F(BenchTest, BenchmarksHaveDistinctNamesAndHelp) {
  EXPECT_EQ(run({"--help"}), 0);
  const std::string all = out();
  EXPECT_EQ(run({"--help-all"}), 0);
  EXPECT_EQ(out(), all);
  std::set<std::string> names;
  for (const BenchCommand& bench : bench_commands()) {
    EXPECT_TRUE(names.insert(bench.name).second) << bench.name;
    EXPECT_THAT(all, HasSubstr("\n  " + bench.name + "  "));
    EXPECT_THAT(all, HasSubstr("  " + bench.help + "\n"));
    EXPECT_EQ(run({bench.name, "--help"}), 0);
    EXPECT_THAT(out(), HasSubstr("mayfly bench " + bench.name));
  }
}

TEST_F(BenchTest, HelpShowsTheDefaultsOfTheBenchmark) {
  EXPECT_EQ(run({"recovery", "--help"}), 0);
  for (const char* flag : {"--workers N [4] ", "[procedural:4096]", "--rebalance BOOL [false] "}) {
    EXPECT_THAT(out(), HasSubstr(flag));
  }
  EXPECT_EQ(run({"step", "--help"}), 0);
  EXPECT_THAT(out(), HasSubstr("--threads N [1] "));
}

class BenchStepCommand : public BenchTest {
 protected:
  BenchStepCommand() {
    context_.benches.step = [this](const StepBenchOptions& options) {
      started_ = "bench_step";
      options_ = options;
      return 0;
    };
  }
  StepBenchOptions options_;
};

TEST_F(BenchStepCommand, StepReceivesItsFlags) {
  EXPECT_EQ(run({"step", "--model", "resnet50", "--image-size", "64", "--batch", "8",
                 "--global-batch", "32", "--threads", "2", "--seconds", "0.5", "--isa", "portable",
                 "--conv-kernels", "direct", "--layers", "--json"}),
            0)
      << err();
  EXPECT_EQ(started_, "bench_step");
  EXPECT_EQ(options_.model, "resnet50");
  EXPECT_EQ(options_.image_size, 64u);
  EXPECT_EQ(options_.batch, 8u);
  EXPECT_EQ(options_.global_batch, 32u);
  EXPECT_EQ(options_.threads, 2u);
  EXPECT_EQ(options_.seconds, 0.5);
  EXPECT_EQ(options_.dtype, "fp32");
  EXPECT_EQ(options_.isa, "portable");
  EXPECT_EQ(options_.conv_kernels, "direct");
  EXPECT_TRUE(options_.layers);
  EXPECT_TRUE(options_.json);
}

TEST_F(BenchStepCommand, StepRunsOneThreadUnlessToldOtherwise) {
  EXPECT_EQ(run({"step"}), 0) << err();
  EXPECT_EQ(options_.threads, 1u);
  EXPECT_EQ(options_.global_batch, 0u);
  EXPECT_FALSE(options_.layers);
}

TEST_F(BenchStepCommand, StepTakesAGpuAndWhereItsSumsAre) {
  EXPECT_EQ(run({"step", "--device", "cuda:1", "--backend", "nccl"}), 0) << err();
  EXPECT_EQ(options_.device, "cuda:1");
  EXPECT_TRUE(options_.sums_on_gpu);
  EXPECT_EQ(run({"step", "--device", "cuda"}), 0) << err();
  EXPECT_FALSE(options_.sums_on_gpu);
}

TEST_F(BenchStepCommand, BadUsageIsExitCode2WithOneLineAndNothingStarted) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--batches", "4"}, "did you mean '--batch'?"},
      {{"--batch", "none"}, "--batch none: expects a whole number from 1 to"},
      {{"--global-batch", "0"}, "--global-batch 0: expects a whole number from 1 to"},
      {{"--model", "resnet21"}, "did you mean 'resnet20'?"},
      {{"--threads", "5000"}, "threads 5000 is not between 0 and 1024"},
      {{"--isa", "sse9"}, "isa 'sse9' is not known"},
      {{"--conv-kernels", "fft"}, "conv_kernels 'fft' is not known"},
      {{"--image-size", "30"}, "multiples of 4"},
      {{"--backend", "nccl"}, "device is cpu"},
      {{"--backend", "gloo"}, "without its exchange"},
      {{"--device", "cuda", "--layers"}, "layers of a CPU, but device is cuda"},
      {{"--device", "cuda", "--threads", "2"}, "a worker has one GPU"},
  };
  for (const auto& [flags, expected] : cases) {
    std::vector<std::string> words = {"step"};
    words.insert(words.end(), flags.begin(), flags.end());
    EXPECT_EQ(run(words), 2) << expected;
    const std::string text = err();
    EXPECT_THAT(text, HasSubstr(expected));
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
    EXPECT_EQ(started_, "");
  }
}

TEST_F(BenchTest, DataReceivesItsFlagsAndRefusesWhatIsNoSize) {
  DataBenchOptions options;
  context_.benches.data = [&](const DataBenchOptions& received) {
    options = received;
    return 0;
  };
  EXPECT_EQ(run({"data", "--data", "images", "--image-size", "64", "--threads", "2", "--store",
                 "1GiB", "--prepared-store", "1MB", "--json"}),
            0)
      << err();
  EXPECT_EQ(options.data, "images");
  EXPECT_EQ(options.image_size, 64u);
  EXPECT_EQ(options.threads, 2u);
  EXPECT_EQ(options.store_bytes, std::uint64_t{1} << 30);
  EXPECT_EQ(options.prepared_bytes, 1'000'000u);
  EXPECT_TRUE(options.json);
  EXPECT_EQ(run({"data"}), 0) << err();
  EXPECT_EQ(options.store_bytes + options.prepared_bytes, 0u);
  EXPECT_EQ(run({"data", "--store", "1TiB"}), 2);
  EXPECT_THAT(err(), HasSubstr("--store 1TiB: not a size such as 1GiB"));
  EXPECT_EQ(run({"data", "--prepared-store", "much"}), 2);
  EXPECT_THAT(err(), HasSubstr("--prepared-store much: not a size such as 1GiB"));
}

}  // namespace
}  // namespace mayfly::bench
