#include "elastic/core/speed_judge.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/random.hpp"
#include "elastic/core/assignment.hpp"
#include "elastic/core/speed_meter.hpp"

namespace mayfly::elastic {
namespace {

constexpr Duration kReport = milliseconds(100);
constexpr Instant kStart = Instant{} + seconds(1);

// --- SpeedMeter

SpeedMeter fed(const std::vector<float>& reports) {
  SpeedMeter meter;
  Instant now = kStart;
  for (const float ms : reports) {
    meter.add(now, ms, 10);
    now = now + kReport;
  }
  return meter;
}

TEST(SpeedMeter, KnowsNothingAtFirst) {
  EXPECT_EQ(SpeedMeter().best_ms(), 0);
  EXPECT_EQ(SpeedMeter().settled_ms(), 0);
}

TEST(SpeedMeter, GivesItsFirstReportsBeforeItHasSettled) {
  const SpeedMeter meter = fed({4, 6});
  EXPECT_FLOAT_EQ(meter.best_ms(), 5);
  EXPECT_EQ(meter.settled_ms(), 0);
}

TEST(SpeedMeter, IgnoresOneHiccupHoweverLong) {
  std::vector<float> reports(60, 5.0F);
  reports[50] = 900;
  EXPECT_FLOAT_EQ(fed(reports).settled_ms(), 5);
}

TEST(SpeedMeter, SeesTimeThatIsStolenAgainAndAgain) {
  // A member is stopped for 100 ms of every 200: every second report has one slow microbatch.
  std::vector<float> reports;
  for (int i = 0; i < 60; ++i) {
    reports.push_back(i % 2 == 0 ? 5.0F : 15.0F);
  }
  EXPECT_NEAR(fed(reports).settled_ms(), 10, 1.7);
}

TEST(SpeedMeter, FollowsALastingChangeWithinThreeSamples) {
  std::vector<float> reports(40, 5.0F);
  reports.insert(reports.end(), 20, 20.0F);
  EXPECT_FLOAT_EQ(fed(reports).settled_ms(), 20);
}

TEST(SpeedMeter, WeighsReportsByTheirMicrobatches) {
  SpeedMeter meter;
  meter.add(kStart, 10, 1);
  meter.add(kStart, 20, 3);
  EXPECT_FLOAT_EQ(meter.best_ms(), 17.5F);
}

// --- Rebalancer

/// Members whose speeds the test sets. The policy judges them every 50 ms; its changes apply.
class Cluster {
 public:
  Cluster(std::vector<float> begin, std::uint32_t microbatches, RebalanceOptions options = {})
      : times(std::move(begin)), microbatches_(microbatches), policy_(options) {
    assign();
  }

  void run(Duration time) {
    for (const Instant end = now + time; now < end; now = now + milliseconds(50)) {
      std::vector<Load> loads;
      for (std::size_t i = 0; i < times.size(); ++i) {
        loads.push_back({times[i], counts[i]});
      }
      if (const auto change = policy_.judge(now, loads)) {
        last = *change;
        changed_at.push_back(now);
        assign();
      }
    }
  }
  [[nodiscard]] std::size_t changes() const { return changed_at.size(); }
  [[nodiscard]] float slowest() const {
    float most = 0;
    for (std::size_t i = 0; i < times.size(); ++i) {
      most = std::max(most, times[i] * static_cast<float>(counts[i]));
    }
    return most;
  }
  Rebalancer& policy() { return policy_; }

  std::vector<float> times;
  std::vector<std::uint32_t> counts;
  std::vector<Instant> changed_at;
  Rebalance last;
  Instant now = kStart;

 private:
  void assign() {
    counts.clear();
    for (const MicrobatchRange& range : proportional_ranges(times, microbatches_)) {
      counts.push_back(range.count);
    }
    policy_.view_began();
  }

  std::uint32_t microbatches_;
  Rebalancer policy_;
};

TEST(Rebalancer, LeavesEqualMembersAlone) {
  Cluster cluster({5, 5.4F, 4.9F}, 8);
  cluster.run(seconds(100));
  EXPECT_EQ(cluster.changes(), 0U);
}

TEST(Rebalancer, GivesASlowedMemberLessWithinSecondsAndThenItsWorkBack) {
  Cluster cluster({5, 5}, 8);
  cluster.run(seconds(10));
  cluster.times = {5, 15};
  cluster.run(seconds(2));
  EXPECT_EQ(cluster.changes(), 1U);
  EXPECT_EQ(cluster.counts, (std::vector<std::uint32_t>{6, 2}));
  EXPECT_FLOAT_EQ(cluster.last.before_ms, 60);
  EXPECT_FLOAT_EQ(cluster.last.after_ms, 30);
  cluster.times = {5, 5};
  cluster.run(seconds(7));
  EXPECT_EQ(cluster.changes(), 2U);
  EXPECT_EQ(cluster.counts, (std::vector<std::uint32_t>{4, 4}));
}

TEST(Rebalancer, WaitsUntilTheGainHasLasted) {
  Cluster cluster({5, 5}, 8);
  for (int i = 0; i < 20; ++i) {
    cluster.times = {5, 15};
    cluster.run(milliseconds(900));
    cluster.times = {5, 5};
    cluster.run(milliseconds(900));
  }
  EXPECT_EQ(cluster.changes(), 0U);
}

TEST(Rebalancer, ChangesThatDoNotLastBecomeRare) {
  Cluster cluster({5, 5}, 8);
  for (int i = 0; i < 300; ++i) {
    cluster.times = {5, i % 2 == 0 ? 15.0F : 5.0F};
    cluster.run(seconds(6));
  }
  EXPECT_LE(cluster.changes(), 14U);  // in half an hour
  for (std::size_t i = 2; i < cluster.changed_at.size(); ++i) {
    EXPECT_GE(cluster.changed_at[i] - cluster.changed_at[i - 1],
              cluster.changed_at[i - 1] - cluster.changed_at[i - 2] - seconds(12));
  }
}

TEST(Rebalancer, DoesNotPayMoreThanItGains) {
  Cluster cluster({5, 5}, 8);
  cluster.policy().change_took(seconds(40));
  cluster.times = {5, 15};  // a change would save half of the time
  cluster.run(seconds(60));
  EXPECT_EQ(cluster.changes(), 0U);
  cluster.policy().change_took(seconds(20));
  cluster.run(seconds(2));
  EXPECT_EQ(cluster.changes(), 1U);
}

/// One of two equal members has three times the work of the other.
const std::vector<Load> kUneven = {{10, 6}, {10, 2}};

TEST(Rebalancer, AGainMustLastAnewAfterAChangeAndInANewView) {
  RebalanceOptions options;
  options.interval = milliseconds(50);
  Rebalancer policy(options);
  EXPECT_FALSE(policy.judge(kStart, kUneven));
  EXPECT_FALSE(policy.judge(kStart + milliseconds(999), kUneven));
  EXPECT_TRUE(policy.judge(kStart + milliseconds(1000), kUneven));
  EXPECT_FALSE(policy.judge(kStart + milliseconds(1200), kUneven)) << "seen for the first time";
  EXPECT_FALSE(policy.judge(kStart + milliseconds(2199), kUneven));
  EXPECT_TRUE(policy.judge(kStart + milliseconds(2200), kUneven));
  EXPECT_FALSE(policy.judge(kStart + milliseconds(3000), kUneven));
  policy.view_began();
  EXPECT_FALSE(policy.judge(kStart + milliseconds(4100), kUneven)) << "of another view";
}

TEST(Rebalancer, BetweenTwoChangesIsAtLeastTheInterval) {
  RebalanceOptions options;
  options.sustained = Duration(0);
  options.interval = seconds(5);
  options.interval_max = seconds(8);
  Rebalancer policy(options);
  std::vector<Duration> changes;
  for (Duration at(0); at <= seconds(40); at += milliseconds(500)) {
    if (policy.judge(kStart + at, kUneven)) {
      changes.push_back(at);
    }
  }
  EXPECT_EQ(changes, (std::vector<Duration>{Duration(0), seconds(5), seconds(13), seconds(21),
                                            seconds(29), seconds(37)}))
      << "it doubles, up to its most";
  EXPECT_TRUE(policy.judge(kStart + seconds(37 + 4 * 8), kUneven));
  EXPECT_FALSE(policy.judge(kStart + seconds(37 + 4 * 8) + milliseconds(4999), kUneven));
  EXPECT_TRUE(policy.judge(kStart + seconds(37 + 4 * 8 + 5), kUneven)) << "they were rare again";
}

TEST(Rebalancer, ActsOnWhatIsJustWorthIt) {
  RebalanceOptions options;
  options.sustained = Duration(0);
  options.gain_min = 0.25;
  const std::vector<Load> quarter = {{10, 4}, {10, 2}};  // a change saves 10 ms of 40
  EXPECT_TRUE(Rebalancer(options).judge(kStart, quarter));
  options.gain_min = 0.26;
  EXPECT_FALSE(Rebalancer(options).judge(kStart, quarter));
  options.gain_min = 0.1;
  Rebalancer policy(options);
  policy.change_took(seconds(15));  // a change saves a quarter of each minute
  EXPECT_TRUE(policy.judge(kStart, quarter));
  Rebalancer dearer(options);
  dearer.change_took(seconds(15) + milliseconds(1));
  EXPECT_FALSE(dearer.judge(kStart, quarter));
}

TEST(Rebalancer, DoesNothingWhileATimeIsUnknownOrIfItIsOff) {
  Cluster unknown({5, 0}, 8);
  unknown.counts = {1, 7};
  unknown.run(seconds(60));
  EXPECT_EQ(unknown.changes(), 0U);
  Cluster off({5, 5}, 8, {.enabled = false});
  off.times = {5, 50};
  off.run(seconds(60));
  EXPECT_EQ(off.changes(), 0U);
}

TEST(Rebalancer, SettlesNearTheBestAssignmentForAnySpeedsWithoutOscillating) {
  constexpr std::uint64_t kSeed = 11;
  RandomStream random{CounterRandom(kSeed)};
  for (int round = 0; round < 50; ++round) {
    std::vector<float> times(2 + random.below(8), 10.0F);
    const auto microbatches = static_cast<std::uint32_t>(times.size() + random.below(60));
    Cluster cluster(times, microbatches);
    constexpr int kSpeedChanges = 4;
    for (int change = 0; change < kSpeedChanges; ++change) {
      for (float& time : cluster.times) {
        time = static_cast<float>(1 + random.below(100));
      }
      cluster.run(seconds(100));
      float best = 0;
      const auto ranges = proportional_ranges(cluster.times, microbatches);
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        best = std::max(best, cluster.times[i] * static_cast<float>(ranges[i].count));
      }
      EXPECT_LE(cluster.slowest() * 0.85F, best * 1.0001F) << "round " << round;
      EXPECT_EQ(std::accumulate(cluster.counts.begin(), cluster.counts.end(), 0U), microbatches);
    }
    EXPECT_LE(cluster.changes(), static_cast<std::size_t>(kSpeedChanges)) << "round " << round;
  }
}

// --- StragglerPolicy

constexpr MemberId kOne{1};
constexpr MemberId kTwo{2};
constexpr MemberId kThree{3};

std::vector<Runner> runners(float one, float two, float three) {
  return {{kOne, "a", one}, {kTwo, "b", two}, {kThree, "c", three}};
}

TEST(StragglerPolicy, IsOffUnlessAskedFor) {
  StragglerPolicy policy({});
  EXPECT_FALSE(policy.judge(kStart, runners(1, 1, 100)));
  EXPECT_FALSE(policy.judge(kStart + seconds(1000), runners(1, 1, 100)));
}

TEST(StragglerPolicy, NamesTheSlowestAfterItWasTooSlowForLongEnough) {
  StragglerPolicy policy({.factor = 4, .after = seconds(10)});
  EXPECT_FALSE(policy.judge(kStart, runners(1, 5, 9)));
  EXPECT_FALSE(policy.judge(kStart + seconds(9), runners(1, 5, 9)));
  EXPECT_FALSE(policy.judge(kStart + seconds(10), runners(1, 1, 3)));  // 3 is fast enough once
  EXPECT_FALSE(policy.judge(kStart + seconds(11), runners(1, 1, 9)));
  EXPECT_EQ(policy.judge(kStart + seconds(21), runners(1, 1, 9)), kThree);
}

TEST(StragglerPolicy, OfTwoThatAreTooSlowTheSlowerOneGoesAndTheFactorItselfIsTooSlow) {
  StragglerPolicy policy({.factor = 4, .after = seconds(1)});
  const std::vector<Runner> four = {
      {kOne, "a", 2}, {kTwo, "b", 8}, {kThree, "c", 8.5F}, {MemberId{4}, "d", 2}};
  EXPECT_FALSE(policy.judge(kStart, four));
  EXPECT_EQ(policy.judge(kStart + seconds(1), four), kThree);
  policy.drained({kThree, "c", 8.5F});
  const std::vector<Runner> rest = {four[0], four[1], four[3]};
  EXPECT_EQ(policy.judge(kStart + seconds(1), rest), kTwo);
  const std::vector<Runner> better = {four[0], {kTwo, "b", 7.9F}, four[3]};
  EXPECT_FALSE(policy.judge(kStart + seconds(1), better));
}

TEST(StragglerPolicy, ComparesWithTheOthersSoThatTwoAreEnough) {
  StragglerPolicy policy({.factor = 3, .after = seconds(1)});
  const std::vector<Runner> two = {{kOne, "a", 1}, {kTwo, "b", 4}};
  EXPECT_FALSE(policy.judge(kStart, two));
  EXPECT_EQ(policy.judge(kStart + seconds(1), two), kTwo);
}

TEST(StragglerPolicy, GivesTheNextMemberOfThatHostTwiceTheTime) {
  StragglerPolicy policy({.factor = 4, .after = seconds(10)});
  (void)policy.judge(kStart, runners(1, 1, 9));
  policy.drained({kThree, "c", 9});
  constexpr MemberId kAgain{7};
  const std::vector<Runner> later = {{kOne, "a", 1}, {kTwo, "b", 1}, {kAgain, "c", 9}};
  EXPECT_FALSE(policy.judge(kStart, later));
  EXPECT_FALSE(policy.judge(kStart + seconds(19), later));
  EXPECT_EQ(policy.judge(kStart + seconds(20), later), kAgain);
}

}  // namespace
}  // namespace mayfly::elastic
