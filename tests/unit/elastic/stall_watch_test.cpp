#include "elastic/core/stall_watch.hpp"

#include <gtest/gtest.h>

namespace mayfly::elastic {
namespace {

constexpr MemberId kFirstMember{1};
constexpr MemberId kSecondMember{2};
constexpr Duration kBeat = milliseconds(50);

/// Two members, each with a heartbeat every 50 ms.
class StallWatchTest : public testing::Test {
 protected:
  /// Lets time pass. The first member's position moves every `one_takes` and the second's every
  /// `two_takes` (zero: never). Collects the stalls that are found.
  void pass(Duration time, Duration one_takes, Duration two_takes) {
    for (const Instant end = now_ + time; now_ < end;) {
      now_ = now_ + kBeat;
      move(one_, one_since_, one_takes);
      move(two_, two_since_, two_takes);
      watch_.on_heartbeat(kFirstMember, one_, now_);
      watch_.on_heartbeat(kSecondMember, two_, now_);
      for (const Stall& stall : watch_.judge({kFirstMember, kSecondMember})) {
        (stall.evict ? evicted_ : reported_).push_back(stall);
      }
    }
  }
  void move(WorkerPosition& position, Instant& since, Duration takes) const {
    if (takes > Duration::zero() && now_ - since >= takes) {
      since = now_;
      ++position.moves;
    }
  }

  StallWatch watch_{StallLimits{}};
  Instant now_;
  WorkerPosition one_{Activity::kCompute, Step{5}, 3, 1, 1};
  WorkerPosition two_{Activity::kExchange, Step{5}, kNoPart, 0, 1};
  Instant one_since_;
  Instant two_since_;
  std::vector<Stall> reported_;
  std::vector<Stall> evicted_;
};

TEST_F(StallWatchTest, ReportsTheCulpritWithinASecondAndWhoWaitsForIt) {
  pass(seconds(2), milliseconds(100), milliseconds(100));
  EXPECT_TRUE(reported_.empty());
  pass(seconds(1), Duration::zero(), Duration::zero());
  ASSERT_EQ(reported_.size(), 1u);
  EXPECT_EQ(reported_[0].member, kFirstMember);
  EXPECT_EQ(reported_[0].waiting, std::vector<MemberId>{kSecondMember});
  EXPECT_EQ(
      describe(reported_[0]),
      "computes microbatch 3 of step 5, bucket 1; it has not moved for 750 ms (longest before: "
      "100 ms); member 2 waits");
  View view;
  view.members.push_back({MemberId{7}, "", {}, 0, 0});
  view.members.push_back({kFirstMember, "", {}, 0, 0});
  const std::string told = describe(reported_[0], view, {"conv1", "layer1.0.conv1"});
  EXPECT_TRUE(told.starts_with("rank 1 computes microbatch 3 of step 5")) << told;
  EXPECT_TRUE(told.ends_with("; bucket 1 is layer1.0.conv1")) << told;
}

TEST_F(StallWatchTest, EvictsOnlyAfterTheLastLimitAndOnce) {
  pass(seconds(2), milliseconds(100), milliseconds(100));
  pass(milliseconds(4900), Duration::zero(), Duration::zero());
  EXPECT_TRUE(evicted_.empty());
  pass(seconds(20), Duration::zero(), Duration::zero());
  ASSERT_EQ(evicted_.size(), 1u);
  EXPECT_EQ(evicted_[0].member, kFirstMember);
  EXPECT_EQ(reported_.size(), 1u);
}

TEST_F(StallWatchTest, TheLimitItselfIsAllowed) {
  pass(seconds(2), milliseconds(100), milliseconds(100));
  pass(seconds(20), Duration::zero(), Duration::zero());
  ASSERT_EQ(reported_.size(), 1u);
  ASSERT_EQ(evicted_.size(), 1u);
  EXPECT_EQ(reported_[0].still, StallLimits{}.report_floor + kBeat);
  EXPECT_EQ(evicted_[0].still, StallLimits{}.evict_floor + kBeat);
}

TEST_F(StallWatchTest, ASlowHealthyMemberIsNeverEvicted) {
  pass(seconds(600), seconds(4), milliseconds(100));
  EXPECT_TRUE(evicted_.empty());
  EXPECT_TRUE(reported_.empty());  // first, no time is known; later, four seconds are usual
}

TEST_F(StallWatchTest, LimitsFollowWhatTheSlowestMemberTakes) {
  two_.activity = Activity::kCompute;
  pass(seconds(20), milliseconds(100), seconds(3));  // the second member is slow
  reported_.clear();
  pass(seconds(11), Duration::zero(), seconds(3));
  EXPECT_TRUE(reported_.empty()) << "one may be as slow as two";
  pass(seconds(4), Duration::zero(), seconds(3));
  ASSERT_EQ(reported_.size(), 1u);
  EXPECT_EQ(reported_[0].member, kFirstMember);
}

TEST_F(StallWatchTest, WhoWaitsIsNeverACulprit) {
  one_.activity = Activity::kExchange;
  pass(seconds(600), Duration::zero(), Duration::zero());
  EXPECT_TRUE(reported_.empty());
  EXPECT_TRUE(evicted_.empty());
}

TEST_F(StallWatchTest, WhatTookLongIsUsualForThatActivityAndForNoOther) {
  pass(seconds(2), milliseconds(100), milliseconds(100));
  pass(seconds(4), Duration::zero(), Duration::zero());  // one microbatch takes four seconds
  ASSERT_EQ(reported_.size(), 1u);
  one_.activity = Activity::kEvaluate;
  pass(milliseconds(200), milliseconds(100), milliseconds(100));
  one_.activity = Activity::kCompute;
  pass(milliseconds(50), Duration::zero(), Duration::zero());
  reported_.clear();
  pass(seconds(5), Duration::zero(), Duration::zero());
  EXPECT_TRUE(reported_.empty()) << "computing has taken four seconds before";
  one_.activity = Activity::kEvaluate;
  pass(seconds(1), Duration::zero(), Duration::zero());
  ASSERT_EQ(reported_.size(), 1u) << "evaluating has not";
  EXPECT_LT(reported_[0].longest, seconds(1));
}

TEST_F(StallWatchTest, WhoMovedAgainIsReportedAndEvictedTheNextTimeToo) {
  pass(seconds(2), milliseconds(100), milliseconds(100));
  pass(seconds(1), Duration::zero(), Duration::zero());
  ASSERT_EQ(reported_.size(), 1u);
  pass(seconds(1), milliseconds(100), milliseconds(100));
  pass(seconds(3), Duration::zero(), Duration::zero());
  EXPECT_EQ(reported_.size(), 1u) << "one second was seen, and four times that is not over";
  pass(seconds(2), Duration::zero(), Duration::zero());
  EXPECT_EQ(reported_.size(), 2u);
  pass(seconds(14), Duration::zero(), Duration::zero());
  EXPECT_TRUE(evicted_.empty()) << "twenty times that is not over";
  pass(seconds(3), Duration::zero(), Duration::zero());
  EXPECT_EQ(evicted_.size(), 1u);
}

TEST_F(StallWatchTest, AnUnknownActivityGetsTime) {
  one_.activity = Activity::kCheckpoint;
  pass(seconds(9), Duration::zero(), Duration::zero());
  EXPECT_TRUE(reported_.empty());
  pass(seconds(2), Duration::zero(), Duration::zero());
  EXPECT_EQ(reported_.size(), 1u);
  pass(seconds(48), Duration::zero(), Duration::zero());
  EXPECT_TRUE(evicted_.empty());
  pass(seconds(2), Duration::zero(), Duration::zero());
  EXPECT_EQ(evicted_.size(), 1u);
}

TEST_F(StallWatchTest, APauseBetweenHeartbeatsIsNobodysFault) {
  pass(seconds(2), milliseconds(100), milliseconds(100));
  now_ = now_ + seconds(30);  // the machine was suspended
  pass(milliseconds(200), Duration::zero(), Duration::zero());
  EXPECT_TRUE(reported_.empty());
  EXPECT_TRUE(evicted_.empty());
}

TEST_F(StallWatchTest, AStuckGroupHasNoCulpritButIsTold) {
  one_.activity = Activity::kExchange;
  pass(seconds(1), milliseconds(100), milliseconds(100));
  EXPECT_FALSE(watch_.group_is_stuck({kFirstMember, kSecondMember}));
  pass(seconds(6), Duration::zero(), Duration::zero());
  EXPECT_TRUE(watch_.group_is_stuck({kFirstMember, kSecondMember}));
  EXPECT_FALSE(watch_.group_is_stuck({kFirstMember, kSecondMember})) << "once";
  EXPECT_FALSE(watch_.group_is_stuck({kFirstMember})) << "one member waits for nobody";
}

TEST_F(StallWatchTest, AfterMinutesOfShortMicrobatchesAHangEndsSooner) {
  pass(seconds(125), milliseconds(100), milliseconds(100));
  pass(seconds(4), Duration::zero(), Duration::zero());
  ASSERT_EQ(reported_.size(), 1u);
  ASSERT_EQ(evicted_.size(), 1u);
  EXPECT_EQ(reported_[0].still, StallLimits{}.regular_report_floor + kBeat);
  EXPECT_EQ(evicted_[0].still, StallLimits{}.regular_evict_floor + kBeat);
}

TEST_F(StallWatchTest, OneLongMicrobatchMakesItPatientForMinutes) {
  pass(seconds(125), milliseconds(100), milliseconds(100));
  pass(milliseconds(300), milliseconds(300), milliseconds(100));  // the machine was busy
  pass(seconds(100), milliseconds(100), milliseconds(100));
  pass(milliseconds(4900), Duration::zero(), Duration::zero());
  EXPECT_TRUE(evicted_.empty());
  pass(milliseconds(100), milliseconds(100), milliseconds(100));
  pass(seconds(300), milliseconds(100), milliseconds(100));  // these 5 s are forgotten slowly
  pass(seconds(4), Duration::zero(), Duration::zero());
  EXPECT_TRUE(evicted_.empty()) << "one has taken five seconds since";
}

// The longest time is forgotten sooner if many members complete shorter microbatches.
TEST_F(StallWatchTest, InALargeJobItIsPatientForAsLong) {
  std::vector<MemberId> members;
  for (std::uint64_t id = 1; id <= 100; ++id) {
    members.push_back(MemberId{id});
  }
  const auto large_pass = [&](Duration time, bool first_moves) {
    for (const Instant end = now_ + time; now_ < end;) {
      now_ = now_ + 2 * kBeat;
      ++two_.moves;
      one_.moves += first_moves ? 1 : 0;
      for (const MemberId member : members) {
        watch_.on_heartbeat(member, member == kFirstMember ? one_ : two_, now_);
      }
      for (const Stall& stall : watch_.judge(members)) {
        (stall.evict ? evicted_ : reported_).push_back(stall);
      }
    }
  };
  two_.activity = Activity::kCompute;
  large_pass(seconds(125), true);
  large_pass(milliseconds(300), false);
  large_pass(seconds(60), true);
  two_.activity = Activity::kExchange;
  large_pass(milliseconds(4900), false);
  EXPECT_EQ(reported_.size(), 1u);
  EXPECT_TRUE(evicted_.empty());
}

TEST_F(StallWatchTest, ShortMicrobatchesSayNothingOfWhereMembersWaitOrRead) {
  one_.activity = Activity::kLoad;
  pass(seconds(125), milliseconds(100), milliseconds(100));
  pass(seconds(30), Duration::zero(), Duration::zero());
  EXPECT_TRUE(evicted_.empty());
  one_.activity = two_.activity = Activity::kExchange;
  pass(seconds(125), milliseconds(100), milliseconds(100));
  pass(milliseconds(4900), Duration::zero(), Duration::zero());
  EXPECT_FALSE(watch_.group_is_stuck({kFirstMember, kSecondMember}));
}

TEST_F(StallWatchTest, WhoAsksForPatienceGetsItFromRegularMembersToo) {
  StallLimits limits;
  limits.evict_after(seconds(10), false);
  watch_ = StallWatch(limits);
  pass(seconds(125), milliseconds(100), milliseconds(100));
  pass(milliseconds(9900), Duration::zero(), Duration::zero());
  EXPECT_TRUE(evicted_.empty());
  pass(milliseconds(200), Duration::zero(), Duration::zero());
  EXPECT_EQ(evicted_.size(), 1u);
}

TEST_F(StallWatchTest, AnyPatienceCanBeAskedFor) {
  for (const Duration still :
       {Duration::zero(), Duration(milliseconds(1)), Duration(seconds(3600))}) {
    StallLimits limits;
    limits.evict_after(still, false);
    watch_ = StallWatch(limits);
    EXPECT_EQ(limits.report_only, still == Duration::zero());
  }
}

TEST_F(StallWatchTest, AShorterLimitThatWasAskedForHolds) {
  StallLimits limits;
  limits.evict_floor = seconds(1);
  limits.report_floor = milliseconds(300);
  limits.patient_evict_floor = seconds(60);
  limits.evict_factor = 5;
  limits.report_factor = 2;
  watch_ = StallWatch(limits);
  pass(seconds(125), milliseconds(100), milliseconds(100));
  pass(seconds(4), Duration::zero(), Duration::zero());
  ASSERT_EQ(evicted_.size(), 1u);
  EXPECT_EQ(evicted_[0].still, seconds(1) + kBeat);
}

TEST_F(StallWatchTest, ANewViewStartsTheClockAgain) {
  pass(seconds(2), milliseconds(100), milliseconds(100));
  pass(milliseconds(600), Duration::zero(), Duration::zero());
  watch_.restart();
  pass(milliseconds(600), Duration::zero(), Duration::zero());
  EXPECT_TRUE(reported_.empty());
}

TEST_F(StallWatchTest, ReportOnlyEvictsNobody) {
  StallLimits limits;
  limits.report_only = true;
  watch_ = StallWatch(limits);
  pass(seconds(1), milliseconds(100), milliseconds(100));
  pass(seconds(600), Duration::zero(), Duration::zero());
  EXPECT_EQ(reported_.size(), 1u);
  EXPECT_TRUE(evicted_.empty());
}

TEST_F(StallWatchTest, AForgottenMemberIsNotJudged) {
  pass(seconds(1), milliseconds(100), milliseconds(100));
  watch_.forget(kFirstMember);
  EXPECT_FALSE(watch_.position(kFirstMember).has_value());
  EXPECT_TRUE(watch_.judge({kFirstMember, kSecondMember}).empty());
}

}  // namespace
}  // namespace mayfly::elastic
