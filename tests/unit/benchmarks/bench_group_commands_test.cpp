#include <gmock/gmock.h>

#include "tests/unit/benchmarks/bench_fixture.hpp"

namespace mayfly::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class BenchGroupCommands : public BenchTest {
 protected:
  BenchGroupCommands() {
    context_.benches.allreduce = [this](const AllReduceBenchOptions& options) {
      started_ = "bench_allreduce";
      allreduce_ = options;
      return 0;
    };
    context_.benches.reform = [this](const ReformBenchOptions& options) {
      started_ = "bench_reform";
      reform_ = options;
      return 0;
    };
    context_.benches.rank = [this](const std::vector<std::string>& words) {
      rank_words_ = words;
      return 0;
    };
  }
  void expect_refused(const std::string& bench, const std::vector<std::string>& flags,
                      const std::string& expected) {
    std::vector<std::string> words = {bench};
    words.insert(words.end(), flags.begin(), flags.end());
    EXPECT_EQ(run(words), 2) << expected;
    const std::string text = err();
    EXPECT_THAT(text, HasSubstr(expected));
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
    EXPECT_EQ(started_, "");
  }
  AllReduceBenchOptions allreduce_;
  ReformBenchOptions reform_;
  std::vector<std::string> rank_words_;
};

TEST_F(BenchGroupCommands, AllReduceMeasuresEverybodyUnlessToldOtherwise) {
  EXPECT_EQ(run({"allreduce"}), 0) << err();
  EXPECT_EQ(started_, "bench_allreduce");
  EXPECT_THAT(allreduce_.ranks, ElementsAre(2, 4));
  EXPECT_THAT(allreduce_.sizes, ElementsAre(4096, 65536, 2097152, 26214400, 104857600));
  EXPECT_EQ(allreduce_.backends, bench_backends());
  EXPECT_EQ(allreduce_.peers, bench_peers());
  EXPECT_FALSE(allreduce_.backends_named);
  EXPECT_FALSE(allreduce_.peers_named);
  EXPECT_EQ(allreduce_.type, "fp32");
  EXPECT_EQ(allreduce_.rounds, 5u);
}

TEST_F(BenchGroupCommands, AllReduceReceivesItsFlags) {
  EXPECT_EQ(
      run({"allreduce", "--ranks", "3", "--sizes", "100,8k,1M", "--backends", "unix,tcp", "--peers",
           "none", "--type", "int32", "--rounds", "9", "--json", "--out", "file.jsonl"}),
      0)
      << err();
  EXPECT_THAT(allreduce_.ranks, ElementsAre(3));
  EXPECT_THAT(allreduce_.sizes, ElementsAre(100, 8192, 1048576));
  EXPECT_THAT(allreduce_.backends, ElementsAre("unix", "tcp"));
  EXPECT_TRUE(allreduce_.backends_named);
  EXPECT_THAT(allreduce_.peers, IsEmpty());
  EXPECT_TRUE(allreduce_.peers_named);
  EXPECT_EQ(allreduce_.type, "int32");
  EXPECT_EQ(allreduce_.rounds, 9u);
  EXPECT_TRUE(allreduce_.json);
  EXPECT_EQ(allreduce_.out, "file.jsonl");
}

TEST_F(BenchGroupCommands, BadUsageOfAllReduceIsOneLineAndNothingStarted) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--sizes", "4G"}, "--sizes 4G: not a size"},
      {{"--sizes", "4K,"}, "--sizes : not a size"},
      {{"--sizes", "6"}, "a multiple of 4"},
      {{"--sizes", "99999999M"}, "up to 4096M"},
      {{"--ranks", "1"}, "--ranks 1: not a number from 2 to 64"},
      {{"--ranks", "2,x"}, "--ranks x: not a number"},
      {{"--backends", "nccl"}, "--backends nccl: not one of tcp, unix"},
      {{"--peers", "poll,poll"}, "--peers poll: named twice"},
      {{"--type", "fp64"}, "--type fp64: not fp32 or int32"},
      {{"--rounds", "0"}, "--rounds 0: expects a whole number from 1 to"},
      {{"--backends", "none", "--peers", "none"}, "nobody is left to measure"},
      {{"--out", "/nonexistent/file.jsonl"}, "--out /nonexistent/file.jsonl: not a file in"},
  };
  for (const auto& [flags, expected] : cases) {
    expect_refused("allreduce", flags, expected);
  }
}

TEST_F(BenchGroupCommands, ReformReceivesItsFlags) {
  EXPECT_EQ(run({"reform"}), 0) << err();
  EXPECT_EQ(reform_.ranks, 8u);
  EXPECT_EQ(reform_.backend, "unix");
  EXPECT_EQ(reform_.kills, 50u);
  EXPECT_EQ(run({"reform", "--ranks", "3", "--backend", "gloo", "--kills", "7", "--json"}), 0)
      << err();
  EXPECT_EQ(started_, "bench_reform");
  EXPECT_EQ(reform_.ranks, 3u);
  EXPECT_EQ(reform_.backend, "gloo");
  EXPECT_EQ(reform_.kills, 7u);
  EXPECT_TRUE(reform_.json);
}

TEST_F(BenchGroupCommands, BadUsageOfReformIsOneLineAndNothingStarted) {
  expect_refused("reform", {"--ranks", "1"}, "--ranks 1: not a number from 2 to 64");
  expect_refused("reform", {"--backend", "mpi"}, "--backend mpi: not tcp, unix or gloo");
  expect_refused("reform", {"--kills", "none"}, "--kills none: expects a whole number from 1 to");
}

TEST_F(BenchGroupCommands, RankCommandIsHiddenAndTakesItsWordsAsTheyAre) {
  EXPECT_EQ(run({"bench-rank", "tcp", "--control", "/tmp/c", "--name", "mayfly-tcp"}), 0);
  EXPECT_THAT(rank_words_, ElementsAre("tcp", "--control", "/tmp/c", "--name", "mayfly-tcp"));
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_THAT(out(), ::testing::Not(HasSubstr("bench-rank")));
}

}  // namespace
}  // namespace mayfly::bench
