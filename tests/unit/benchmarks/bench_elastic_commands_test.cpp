#include <gmock/gmock.h>

#include "tests/unit/benchmarks/bench_fixture.hpp"

namespace mayfly::bench {
namespace {

using ::testing::HasSubstr;

class BenchElasticCommands : public BenchTest {
 protected:
  BenchElasticCommands() {
    context_.benches.elastic = [this](const std::string& name, const ElasticBenchOptions& options) {
      started_ = name;
      options_ = options;
      return 0;
    };
  }
  ElasticBenchOptions options_;
};

TEST_F(BenchElasticCommands, RecoveryReceivesItsFlags) {
  EXPECT_EQ(run({"recovery", "--workers", "8", "--resident-mib", "1024", "--events", "100",
                 "--fault", "stop", "--model", "resnet56", "--json"}),
            0)
      << err();
  EXPECT_EQ(started_, "recovery");
  EXPECT_EQ(options_.job.workers, 8u);
  EXPECT_EQ(options_.job.resident_mib, 1024u);
  EXPECT_EQ(options_.job.model, "resnet56");
  EXPECT_EQ(options_.events, 100u);
  EXPECT_EQ(options_.fault, "stop");
  EXPECT_TRUE(options_.json);
}

TEST_F(BenchElasticCommands, TheJobNeverEndsByItselfAndItsScheduleDoesNotDependOnItsLength) {
  EXPECT_EQ(run({"drain"}), 0) << err();
  EXPECT_GE(options_.job.steps, 1'000'000u);
  EXPECT_EQ(options_.job.lr_schedule, "constant");
  EXPECT_EQ(options_.job.warmup_epochs, 0);
}

TEST_F(BenchElasticCommands, AJoinNeedsOneWorkerOnly) {
  EXPECT_EQ(run({"join", "--workers", "1"}), 0) << err();
  EXPECT_EQ(options_.job.workers, 1u);
}

TEST_F(BenchElasticCommands, KillsIsAnotherNameOfEvents) {
  EXPECT_EQ(run({"recovery", "--kills", "7"}), 0) << err();
  EXPECT_EQ(options_.events, 7u);
}

TEST_F(BenchElasticCommands, GoodputTakesATraceOrKills) {
  EXPECT_EQ(run({"goodput", "--trace", "p3.csv", "--speedup", "120", "--nodes-max", "4"}), 0)
      << err();
  EXPECT_EQ(options_.trace, "p3.csv");
  EXPECT_EQ(options_.speedup, 120);
  EXPECT_EQ(options_.nodes_max, 4u);
  EXPECT_EQ(run({"goodput", "--kill-every", "5", "--minutes", "10"}), 0) << err();
  EXPECT_EQ(options_.kill_every, 5);
  EXPECT_EQ(options_.minutes, 10);
}

TEST_F(BenchElasticCommands, BadUsageIsExitCode2WithOneLineAndNothingStarted) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"recovery", "--fault", "flood"}, "not one of kill, stop, vanish"},
      {{"detect", "--fault", "vanish"}, "not one of kill, stop, hang"},
      {{"join", "--events", "0"}, "--events 0: expects a whole number from 1 to"},
      {{"recovery", "--workers", "1"}, "at least 2 are needed"},
      {{"goodput"}, "needs --trace FILE or --kill-every SECONDS"},
      {{"goodput", "--trace", "a", "--kill-every", "1"}, "needs --trace FILE or"},
      {{"drain", "--model", "resnet21"}, "did you mean 'resnet20'?"}};
  for (const auto& [words, complaint] : cases) {
    EXPECT_EQ(run(words), 2) << words.front();
    EXPECT_THAT(err(), HasSubstr(complaint));
    EXPECT_EQ(started_, "");
  }
}

}  // namespace
}  // namespace mayfly::bench
