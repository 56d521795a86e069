#include "engine/cloud/worker_supply.hpp"

#include <gtest/gtest.h>

namespace mayfly::engine {
namespace {

cloud_hooks::CloudFact fact_of(const std::string& kind, const std::string& detail = {}) {
  cloud_hooks::CloudFact fact;
  fact.kind = kind;
  fact.detail = detail;
  return fact;
}

JobConfig on(const std::string& provider, const std::string& offers) {
  JobConfig config;
  config.cloud_provider = provider;
  config.cloud_offers = offers;
  return config;
}

TEST(WorkerSupply, EndsWhenNoServerStartsUntilAWorkerJoins) {
  WorkerSupply supply(on("gce", "a,b"));
  EXPECT_EQ(supply.why_ended(), "");
  supply.on_fact(fact_of("no_server_starts", "three failed"));
  EXPECT_EQ(supply.why_ended(), "three failed");
  supply.on_fact(fact_of("server_requested", "another one"));
  EXPECT_EQ(supply.why_ended(), "three failed");
  supply.on_fact(fact_of("server_joined"));
  EXPECT_EQ(supply.why_ended(), "");
}

TEST(WorkerSupply, EndsWithItsOnlyOfferAndWithNoOther) {
  for (const auto& [config, ends] : {std::pair(on("ssh", "a,b"), true),
                                     {on("slurm", "a"), true},
                                     {on("slurm", "a,b"), false},
                                     {on("gce", "a"), false}}) {
    WorkerSupply supply(config);
    supply.on_fact(fact_of("offer_stopped", "it is not valid"));
    EXPECT_EQ(!supply.why_ended().empty(), ends) << config.cloud_provider;
  }
}

TEST(WorkerSupply, IsOpenAgainWhenAnotherNumberIsWanted) {
  WorkerSupply supply(on("gce", "a"));
  supply.on_fact(fact_of("no_server_starts", "three failed"));
  supply.reopen();
  EXPECT_EQ(supply.why_ended(), "");
}

}  // namespace
}  // namespace mayfly::engine
