#include "engine/cloud/machine_parts.hpp"

#include <gtest/gtest.h>

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
