#include "cli/run_facts.hpp"

#include <gtest/gtest.h>

#include "tests/unit/observe/run_folder.hpp"

namespace mayfly::cli {
namespace {

using observe::event_line;
using observe::RunFolder;

/// The events of a server from the request for it to the arrival of its worker.
std::string server_lines(const std::string& server, const std::string& offer) {
  const std::string named = "\"server\": \"" + server + "\", \"detail\": \"" + offer + "\"";
  return event_line(1, "server_requested", "\"detail\": \"1 x " + offer + "\"") + "\n" +
         event_line(2, "server_granted", named) + "\n" + event_line(3, "server_joined", named) +
         "\n";
}

TEST(RunFacts, ServersOfEvaluatorsAreNoMachinesOfWorkers) {
  const RunFolder run;
  run.add("config.toml",
          "model = \"resnet20\"\nglobal_batch = 100\nmicrobatch = 50\nthreads = 2\n"
          "cloud_offers = \"gpu@z:spot=1\"\nevaluators = 1\n"
          "evaluator_offers = \"small@z:on_demand=0.1\"\n");
  run.add("events.jsonl",
          server_lines("s1", "gpu in z (spot)") + server_lines("e1", "small in z (on demand)") +
              event_line(4, "view", observe::view_more(0, "[1]", "[\"a\"]")) + "\n");
  for (int step = 1; step <= 20; ++step) {
    run.add("metrics.jsonl", observe::step_line(step, 4 + step) + "\n");
  }
  const Result<RunRecord> read = read_run_record(run.path(), {});
  ASSERT_TRUE(read.ok()) << read.error().detail;
  const planner::RunFacts& facts = read.value().facts;
  EXPECT_EQ(facts.machine, "gpu") << "else the run would have no speeds";
  ASSERT_EQ(facts.workers.size(), 1U);
  EXPECT_EQ(facts.workers[0].machine, "gpu");
  EXPECT_EQ(facts.starts.size(), 1U);
}

}  // namespace
}  // namespace mayfly::cli
