#include "cloud_hooks/gce/gce_quotas.hpp"

#include <gtest/gtest.h>

namespace mayfly::cloud_hooks {
namespace {

using Quotas = std::vector<GceQuota>;

TEST(GceQuotas, AreReadFromTheDescriptionOfARegion) {
  const auto read = parse_gce_quotas(
      R"({"name": "us-central1", "quotas": [{"metric": "CPUS", "limit": 24, "usage": 4.0},)"
      R"( {"metric": "NEW", "limit": "many"}, 7, {"limit": 1, "usage": 0}]})");
  EXPECT_EQ(read.value(), (Quotas{{"CPUS", 24, 4}}));
  EXPECT_TRUE(parse_gce_quotas("{}").value().empty());
  for (const char* text : {"", "[]", "{", "7"}) {
    EXPECT_FALSE(parse_gce_quotas(text).ok()) << text;
  }
}

TEST(GceQuotas, OfSpotServersAreTheirOwnOrTheUsualOnes) {
  const Quotas quotas = {{"CPUS", 24, 24}, {"PREEMPTIBLE_CPUS", 64, 8}};
  const std::vector<Finding> spot =
      judge_gce_quotas("us-central1", quotas, {{"n1-standard-8", "us-central1-a", Market::kSpot}});
  ASSERT_EQ(spot.size(), 1U);
  EXPECT_TRUE(spot[0].ok);
  EXPECT_EQ(spot[0].text,
            "quota of us-central1: PREEMPTIBLE_CPUS 8 of 64 in use, CPUS 24 of 24 in use");
  const std::vector<Finding> on_demand = judge_gce_quotas(
      "us-central1", quotas, {{"n1-standard-8", "us-central1-a", Market::kOnDemand}});
  ASSERT_EQ(on_demand.size(), 1U);
  EXPECT_FALSE(on_demand[0].ok);
  EXPECT_NE(on_demand[0].text.find("no quota left"), std::string::npos);
}

TEST(GceQuotas, OfAcceleratorsAreJudgedWhereTheRegionHasThem) {
  const Quotas quotas = {
      {"CPUS", 24, 0}, {"NVIDIA_T4_GPUS", 1, 1}, {"PREEMPTIBLE_NVIDIA_T4_GPUS", 0, 0}};
  const std::vector<Offer> offers = {{"n1-standard-8+nvidia-tesla-t4:1", "a", Market::kSpot},
                                     {"n1-standard-8+nvidia-unheard-of:1", "a", Market::kSpot}};
  const std::vector<Finding> findings = judge_gce_quotas("r", quotas, offers);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_TRUE(findings[0].ok);
  EXPECT_FALSE(findings[1].ok);
  EXPECT_NE(findings[1].text.find("NVIDIA_T4_GPUS 1 of 1"), std::string::npos);
  EXPECT_TRUE(judge_gce_quotas("r", {}, offers).empty());
}

}  // namespace
}  // namespace mayfly::cloud_hooks
