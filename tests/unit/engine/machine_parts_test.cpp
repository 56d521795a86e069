#include "engine/cloud/machine_parts.hpp"

#include <gtest/gtest.h>

#include "engine/server_roles/ps_servers.hpp"

namespace mayfly::engine {
namespace {

constexpr const char* kEvaluates = "evaluator = true\n";

elastic::JobStatus in_charge() {
  elastic::JobStatus status;
  status.in_charge = true;
  return status;
}

TEST(MachineParts, TrainingComesBeforeEvaluators) {
  JobConfig config;
  config.evaluators = 1;
  MachineParts parts(config);
  for (const char* machine : {"a", "b"}) {
    EXPECT_NE(parts.settings_of(machine, in_charge(), 2), kEvaluates) << machine;
  }
  for (int times = 0; times < 2; ++times) {
    EXPECT_EQ(parts.settings_of("c", in_charge(), 2), kEvaluates);
  }
  EXPECT_NE(parts.settings_of("d", in_charge(), 2), kEvaluates) << "one was wanted";
  parts.gone("c");
  EXPECT_NE(parts.settings_of("d", in_charge(), 2), kEvaluates) << "it was told to train";
  EXPECT_EQ(parts.settings_of("e", in_charge(), 2), kEvaluates);
}

TEST(MachineParts, AnEvaluatorWhoseServerHasEndedKeepsNoPlace) {
  JobConfig config;
  config.evaluators = 1;
  MachineParts parts(config);
  parts.gone("a");
  parts.evaluates("a");  // the evaluator's connection has not ended yet
  EXPECT_EQ(parts.settings_of("b", in_charge(), 0), kEvaluates);
}

// Goal: a coordinator that is restarted before the job's first view assigns no place a second time.
TEST(MachineParts, ServersOfAnEarlierCoordinatorKeepTheirPlaces) {
  JobConfig config;
  config.sync = "bsp";
  config.ps = 2;
  config.workers = 1;
  elastic::MemberStatus server;
  server.server = "b";
  server.address = to_text(ServerAddress{.index = 0, .shards = {"10.0.0.2:7000"}, .followers = {}});
  elastic::JobStatus status = in_charge();
  status.members = {server};
  MachineParts parts(config);
  EXPECT_EQ(parts.settings_of("c", status, 3), "ps_server = true\nps_index = 1\n");
  EXPECT_TRUE(parts.is_server("b"));
  EXPECT_EQ(parts.settings_of("d", status, 3), "") << "a worker";
  EXPECT_EQ(parts.settings_of("b", status, 3), "ps_server = true\nps_index = 0\n");
  parts.gone("b");
  EXPECT_EQ(parts.settings_of("e", status, 3), "ps_server = true\nps_index = 0\n")
      << "although the member has not been lost yet";
}

TEST(MachineParts, TheOfferDecidesIfEvaluatorsHaveTheirOwn) {
  JobConfig config;
  config.evaluators = 1;
  config.evaluator_offers = "small@zone:spot=0.1";
  MachineParts parts(config);
  parts.granted("a", true);
  parts.granted("b", false);
  EXPECT_EQ(parts.settings_of("a", in_charge(), 2), kEvaluates);
  EXPECT_NE(parts.settings_of("b", in_charge(), 0), kEvaluates);
}

}  // namespace
}  // namespace mayfly::engine
