#include "elastic/core/speed_judge.hpp"

#include <gtest/gtest.h>

#include "tests/unit/elastic/membership_fixture.hpp"

namespace mayfly::elastic {
namespace {

CoordinatorOptions eager() {
  CoordinatorOptions options;
  options.rebalance.sustained = Duration{};
  options.stragglers.factor = 3;
  options.stragglers.after = milliseconds(1);
  return options;
}

/// Each member reports the time of one of its microbatches, for three samples of its speed meter.
void report(Membership& membership, const std::vector<std::pair<MemberId, float>>& times) {
  for (int i = 0; i < 12; ++i) {
    for (const auto& [id, ms] : times) {
      membership.progressed(id, Progress{ViewId{1}, Step{10}, ms, 10},
                            kSoon + milliseconds(250) * i);
    }
  }
}

TEST(SpeedJudge, SaysNothingWhileSpeedsAreUnknown) {
  const Membership membership = working({k1, k2});
  SpeedJudge judge{eager()};
  const SpeedJudge::Verdict verdict = judge.judge(kLater, membership);
  EXPECT_FALSE(verdict.straggler);
  EXPECT_FALSE(verdict.rebalance);
}

TEST(SpeedJudge, AStragglerLeavesOnlyIfEnoughRemain) {
  for (const std::uint32_t least : {2u, 3u}) {
    CoordinatorOptions options = eager();
    options.min_workers = least;
    Membership membership = working({k1, k2, k3}, options);
    report(membership, {{k1, 10.0f}, {k2, 10.0f}, {k3, 100.0f}});
    SpeedJudge judge{options};
    (void)judge.judge(kLater + seconds(10), membership);  // member 3 counts as slow from now on
    const SpeedJudge::Verdict verdict =
        judge.judge(kLater + seconds(10) + milliseconds(200), membership);
    ASSERT_EQ(verdict.straggler.has_value(), least == 2);
    if (verdict.straggler) {
      EXPECT_EQ(verdict.straggler->member, k3);
      EXPECT_EQ(verdict.straggler->reason, "straggler: 100.0 ms a microbatch");
      EXPECT_FALSE(verdict.rebalance) << "the change that follows shares out anew";
    }
  }
}

}  // namespace
}  // namespace mayfly::elastic
