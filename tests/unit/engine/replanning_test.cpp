#include "engine/cloud/replanning.hpp"

#include <gtest/gtest.h>

#include "engine/run/record_json.hpp"

namespace mayfly::engine {
namespace {

using elastic::JobPhase;

constexpr Instant kNow{1'000'000'000};

TEST(Replanning, LooksFourTimesASecondWhileTheJobRuns) {
  JobConfig config;
  config.cloud_replan = "act";
  Replanning replanning(config, 8);
  EXPECT_FALSE(replanning.is_due(kNow, JobPhase::kWaiting));
  EXPECT_TRUE(replanning.is_due(kNow, JobPhase::kRunning));
  EXPECT_FALSE(replanning.is_due(kNow + milliseconds(249), JobPhase::kRunning));
  EXPECT_TRUE(replanning.is_due(kNow + milliseconds(250), JobPhase::kRunning));
}

TEST(Replanning, NeverLooksIfItIsOff) {
  JobConfig config;
  config.cloud_replan = "off";
  EXPECT_FALSE(Replanning(config, 8).is_due(kNow, JobPhase::kRunning));
}

TEST(Replanning, TheServersAreSettledWhenAllThatAreWantedWork) {
  cloud_hooks::Composition present;
  present.working.resize(2);
  present.working[0].price_per_hour = 3;
  present.working[0].age = seconds(60);
  present.is_settled = true;
  const planner::ReplanFacts facts = replan_facts(present, 2);
  ASSERT_EQ(facts.servers.size(), 2U);
  EXPECT_EQ(facts.servers[0].price_per_hour, 3);
  EXPECT_EQ(facts.servers[0].age_s, 60);
  EXPECT_FALSE(facts.next.has_value()) << "nothing would be asked for";
  EXPECT_TRUE(facts.is_settled);
  EXPECT_FALSE(replan_facts(present, 3).is_settled) << "one does not work";
  present.is_settled = false;
  EXPECT_FALSE(replan_facts(present, 2).is_settled) << "one is leaving";
}

TEST(Replanning, AProposalIsAnEventThatTheUserIsTold) {
  planner::Proposal proposal;
  proposal.change = planner::Change::kFewer;
  proposal.because = "one fewer saves 3";
  const Fact fact = fact_of(proposal, false);
  EXPECT_EQ(fact.kind, "replan");
  EXPECT_EQ(fact.line, "replan: one fewer saves 3");
  EXPECT_EQ(field_of<std::string>(fact.fields, "change"), "fewer");
  EXPECT_EQ(field_of<std::string>(fact.fields, "unit"), "money");
  EXPECT_FALSE(field_of<bool>(fact.fields, "acts"));
}

}  // namespace
}  // namespace mayfly::engine
