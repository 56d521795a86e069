#include "elastic/core/view_change.hpp"

#include <gtest/gtest.h>

#include "tests/unit/elastic/membership_fixture.hpp"

namespace mayfly::elastic {
namespace {

using StopOrder = ViewChange::StopOrder;

ViewChange change_with_limits() {
  CoordinatorOptions options;
  options.stop_timeout = seconds(10);
  options.dispute_timeout = seconds(1);
  return ViewChange(options);
}

/// Publishes view 2, whose group forms, gets its state and commits a step. Returns the recovery.
std::optional<Recovery> settle(ViewChange& change, Instant now) {
  change.publish(now, view_with(2, 10, {k1}), {}, 0);
  change.formed(now);
  change.synced(now);
  change.committed(now);
  return change.take_settled(true);
}

TEST(ViewChange, MembersAreToldOnlyWhatTheyDoNotKnow) {
  ViewChange change = change_with_limits();
  EXPECT_EQ(change.begin(kSoon, ViewId{1}, false, ChangeCause::kJoin, {k2}),
            StopOrder::kAtBoundary);
  EXPECT_FALSE(change.is_immediate());
  EXPECT_EQ(change.begin(kSoon, ViewId{1}, false, ChangeCause::kFinish, {}), StopOrder::kNone);
  EXPECT_EQ(change.begin(kSoon, ViewId{1}, false, ChangeCause::kGroupFailed, {}), StopOrder::kNone);
  EXPECT_EQ(change.begin(kSoon, ViewId{1}, true, ChangeCause::kLost, {k1}), StopOrder::kAtOnce);
  EXPECT_TRUE(change.is_immediate());
  EXPECT_EQ(change.add(kSoon, true, ChangeCause::kLost, {k2}), StopOrder::kNone)
      << "they were told";
}

TEST(ViewChange, ALossWithinAPlannedChangeIsARecoveryFromThenOn) {
  ViewChange change = change_with_limits();
  (void)change.begin(kSoon, ViewId{1}, false, ChangeCause::kJoin, {k3});
  EXPECT_EQ(change.add(kLater, true, ChangeCause::kLost, {k1}), StopOrder::kAtOnce);
  const auto done = settle(change, kLater + seconds(1));
  ASSERT_TRUE(done);
  EXPECT_EQ(done->cause, ChangeCause::kLost);
  EXPECT_EQ(done->members, (std::vector<MemberId>{k3, k1}));
  EXPECT_EQ(done->detected, kLater);
  EXPECT_EQ(done->told, kLater);
}

TEST(ViewChange, TheFirstCauseOfABreakIsReplacedOnlyByALoss) {
  ViewChange change = change_with_limits();
  (void)change.begin(kSoon, ViewId{1}, true, ChangeCause::kGroupFailed, {});
  change.broke_first(k2, "reset");
  EXPECT_EQ(change.first_to_break(), k2);
  (void)change.add(kSoon, true, ChangeCause::kLost, {k1});
  EXPECT_EQ(change.first_to_break(), std::nullopt) << "it broke because somebody was lost";
  EXPECT_EQ(settle(change, kLater)->detail, "member 2: reset");
}

TEST(ViewChange, ARecoveryThatIsNotOverIsPartOfTheNext) {
  ViewChange change = change_with_limits();
  (void)change.begin(kSoon, ViewId{1}, true, ChangeCause::kLost, {k1});
  change.explain_if_open("silent");
  change.publish(kSoon, view_with(2, 10, {k2, k3}), {}, 4);
  EXPECT_TRUE(change.is_settling());
  (void)change.begin(kLater, ViewId{2}, true, ChangeCause::kLost, {k2});
  change.explain_if_open("killed");
  const auto done = settle(change, kLater);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->members, (std::vector<MemberId>{k1, k2}));
  EXPECT_EQ(done->old_view, ViewId{1});
  EXPECT_EQ(done->detected, kSoon);
  EXPECT_EQ(done->detail, "silent");
}

TEST(ViewChange, IsToldOnceWhenEverybodyHasStartedAndAStepIsDone) {
  ViewChange change = change_with_limits();
  (void)change.begin(kSoon, ViewId{1}, false, ChangeCause::kJoin, {});
  change.publish(kSoon, view_with(2, 10, {k1, k2}), {k2}, 3);
  EXPECT_EQ(change.take_settled(true), std::nullopt) << "no step of the view is committed";
  change.committed(kLater);
  change.committed(kLater + seconds(1));
  EXPECT_EQ(change.take_settled(false), std::nullopt);
  const auto done = change.take_settled(true);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->step, kLater);
  EXPECT_EQ(done->members, std::vector<MemberId>{k2});
  EXPECT_EQ(done->redone_microbatches, 3u);
  EXPECT_EQ(change.take_settled(true), std::nullopt);
}

TEST(ViewChange, APauseAndAStopAreNoRecoveryAndAnEarlyFinishIsABreak) {
  ViewChange change = change_with_limits();
  for (const ChangeCause order : {ChangeCause::kPause, ChangeCause::kStop}) {
    (void)change.begin(kSoon, ViewId{1}, false, order, {});
    EXPECT_EQ(settle(change, kLater), std::nullopt);
  }
  (void)change.begin(kSoon, ViewId{2}, false, ChangeCause::kFinish, {});
  EXPECT_EQ(settle(change, kLater)->cause, ChangeCause::kGroupFailed);
}

TEST(ViewChange, MembersHaveADeadlineOnceSomebodyHasStopped) {
  ViewChange change = change_with_limits();
  (void)change.begin(kSoon, ViewId{1}, false, ChangeCause::kJoin, {});
  EXPECT_FALSE(change.is_overdue(kSoon + seconds(1000))) << "a boundary may be far away";
  change.await_others(kLater);
  change.await_others(kLater + seconds(5));
  EXPECT_FALSE(change.is_overdue(kLater + seconds(9)));
  EXPECT_TRUE(change.is_overdue(kLater + seconds(10)));
}

TEST(ViewChange, ThatIsPlannedStaysSoIfABoundaryIsTooFarAway) {
  ViewChange change = change_with_limits();
  (void)change.begin(kSoon, ViewId{1}, false, ChangeCause::kJoin, {});
  change.await_others(kSoon);
  change.insist(kLater);
  EXPECT_TRUE(change.is_immediate());
  EXPECT_FALSE(change.is_overdue(kLater + seconds(9)));
  EXPECT_TRUE(change.is_overdue(kLater + seconds(10)));
  EXPECT_EQ(change.add(kLater, true, ChangeCause::kGroupFailed, {}), StopOrder::kNone);
  const auto done = settle(change, kLater);
  EXPECT_EQ(done->cause, ChangeCause::kJoin);
  EXPECT_EQ(done->detected, kSoon);
}

TEST(ViewChange, ALossWithinAPlannedChangeThatWasInsistedOnIsARecoveryFromThenOn) {
  ViewChange change = change_with_limits();
  (void)change.begin(kSoon, ViewId{1}, false, ChangeCause::kJoin, {k3});
  change.await_others(kSoon);
  change.insist(kSoon + seconds(10));
  const Instant evicted = kLater + seconds(20);
  EXPECT_EQ(change.add(evicted, true, ChangeCause::kLost, {k1}), StopOrder::kNone) << "they know";
  const auto done = settle(change, evicted + seconds(1));
  ASSERT_TRUE(done);
  EXPECT_EQ(done->cause, ChangeCause::kLost);
  EXPECT_EQ(done->detected, evicted);
  EXPECT_EQ(done->told, evicted);
}

TEST(ViewChange, OthersFindADisputeBySoonerThanABoundary) {
  ViewChange change = change_with_limits();
  (void)change.begin(kSoon, ViewId{1}, false, ChangeCause::kJoin, {});
  change.await_others(kSoon);
  change.await_disputes(kLater, Dispute::kState);
  EXPECT_TRUE(change.is_overdue(kLater + seconds(1)));
  const auto done = settle(change, kLater + seconds(1));
  EXPECT_EQ(done->cause, ChangeCause::kGroupFailed);
  EXPECT_EQ(done->detected, kLater);
}

TEST(ViewChange, OurOwnPauseIsExcusedUpToTheUsualTime) {
  ViewChange change = change_with_limits();
  (void)change.begin(kSoon, ViewId{1}, true, ChangeCause::kLost, {k1});
  change.extend_deadlines(seconds(3), kSoon + seconds(4));
  EXPECT_FALSE(change.is_overdue(kSoon + seconds(12)));
  EXPECT_TRUE(change.is_overdue(kSoon + seconds(13)));
  change.extend_deadlines(seconds(1000), kSoon + seconds(12));
  EXPECT_TRUE(change.is_overdue(kSoon + seconds(22)));
}

TEST(ViewChange, ForgetsWhatAnotherCoordinatorMayHaveLed) {
  ViewChange change = change_with_limits();
  (void)change.begin(kSoon, ViewId{1}, true, ChangeCause::kGroupFailed, {});
  change.broke_first(k1, "reset");
  change.forget_all();
  EXPECT_EQ(change.first_to_break(), std::nullopt);
  EXPECT_FALSE(change.is_overdue(kSoon + seconds(1000)));
  EXPECT_EQ(settle(change, kLater), std::nullopt);
}

TEST(ViewChangeDeathTest, OnlyAChangeUnderWayCanBeAddedTo) {
  ViewChange change = change_with_limits();
  EXPECT_DEATH((void)change.add(kSoon, true, ChangeCause::kLost, {k1}), "part of a change");
  EXPECT_DEATH((void)change.begin(kSoon, ViewId{}, true, ChangeCause::kLost, {k1}),
               "only a published view");
}

}  // namespace
}  // namespace mayfly::elastic
