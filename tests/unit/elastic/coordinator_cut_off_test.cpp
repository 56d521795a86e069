// A member that is itself cut off from other members reports that by blaming itself.

#include <gtest/gtest.h>

#include "tests/unit/elastic/coordinator_harness.hpp"

namespace mayfly::elastic {
namespace {

using Members = std::vector<MemberId>;

TEST(CoordinatorCutOff, WhoSaysThatItIsGoesAtOnceAndTheOthersGoOn) {
  CoordinatorHarness job = running_job(3);
  job.failed(k2, 10, k2);
  job.stopped(k1, 10);
  job.stopped(k3, 10);
  EXPECT_EQ(job.view_members(), (Members{k1, k3}));
  EXPECT_EQ(job.sent<Dismiss>(k2).size(), 1U);
  std::string why;
  for (const auto& note : job.all<coordinator_effect::Note>()) {
    why += note.kind == "evicted" && note.member == k2 ? note.detail : "";
  }
  EXPECT_EQ(why, "it is cut off: broken");
}

// If all members are cut off from the same one, the last of them blames it, and it is evicted.
TEST(CoordinatorCutOff, GoesOnlyOneInAView) {
  CoordinatorHarness job = running_job(3);
  job.failed(k2, 10, k2);
  job.failed(k3, 10, k3);
  job.stopped(k1, 10);
  EXPECT_EQ(job.view_members(), (Members{k1, k3}));
  for (int view = 0; view < 3; ++view) {
    EXPECT_EQ(job.view_members(), (Members{k1, k3}));
    job.failed(k3, 10, k1);
    job.stopped(k1, 10);
  }
  EXPECT_EQ(job.view_members(), Members{k3});
}

}  // namespace
}  // namespace mayfly::elastic
