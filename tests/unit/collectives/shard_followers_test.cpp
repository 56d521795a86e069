// Which servers lead and follow shards, and which items leaders hold back.

#include <gtest/gtest.h>

#include "collectives/parameter_server/core/replicas.hpp"
#include "collectives/parameter_server/core/shard_core.hpp"

namespace mayfly::parameter_server {
namespace {

TEST(Placement, PutsAFollowerOnTheNextServer) {
  const Placement placement(3, 2, true);
  EXPECT_EQ(placement.leader_of(0), 0U);
  EXPECT_EQ(placement.follower_of(1), 1U);
  EXPECT_EQ(placement.leader_of(5), 2U);
  EXPECT_EQ(placement.follower_of(5), 0U);
}

TEST(Placement, LetsTheFollowerLeadAloneWhenTheLeaderIsLost) {
  Placement placement(3, 2, true);
  placement.lose(1);
  EXPECT_EQ(placement.leader_of(2), 2U);
  EXPECT_EQ(placement.follower_of(2), std::nullopt);
  EXPECT_EQ(placement.leader_of(0), 0U);
  EXPECT_EQ(placement.follower_of(0), std::nullopt) << "its follower was there";
  EXPECT_EQ(placement.follower_of(4), 0U);
  EXPECT_FALSE(placement.is_torn());
}

TEST(Placement, IsTornWhenTwoNeighboursAreLostAndNotOtherwise) {
  Placement placement(4, 1, true);
  placement.lose(0);
  placement.lose(2);
  EXPECT_FALSE(placement.is_torn());
  placement.lose(3);
  EXPECT_TRUE(placement.is_torn());
  Placement alone(2, 1, false);
  alone.lose(1);
  EXPECT_TRUE(alone.is_torn());
}

TEST(LeaderLog, KeepsBackWhatItsFollowerLacks) {
  LeaderLog log(true);
  EXPECT_EQ(log.add(), 1U);
  EXPECT_EQ(log.add(), 2U);
  EXPECT_EQ(log.safe(), 0U);
  ASSERT_TRUE(log.taken(1).ok());
  EXPECT_EQ(log.safe(), 1U);
  EXPECT_FALSE(log.taken(3).ok()) << "it was not given that";
  EXPECT_FALSE(log.taken(0).ok()) << "it had more before";
  log.lose_follower();
  EXPECT_GE(log.safe(), 2U);
}

TEST(HeldBack, LetsItemsLeaveInOrderWhenTheirEntriesAreSafe) {
  HeldBack<int> held;
  EXPECT_TRUE(held.empty());
  held.add(0, 10);
  held.add(2, 20);
  held.add(2, 21);
  EXPECT_EQ(held.next(1), 10);
  EXPECT_EQ(held.next(1), std::nullopt);
  EXPECT_FALSE(held.empty());
  EXPECT_EQ(held.next(2), 20);
  EXPECT_EQ(held.next(2), 21);
  EXPECT_EQ(held.next(2), std::nullopt);
  EXPECT_TRUE(held.empty());
}

TEST(FollowerLog, TakesEveryEntryOnceAndNoneOutOfTurn) {
  FollowerLog log;
  EXPECT_EQ(log.judge(1), EntryVerdict::kNew);
  EXPECT_EQ(log.judge(3), EntryVerdict::kGap);
  EXPECT_EQ(log.judge(1), EntryVerdict::kRepeat);
  EXPECT_EQ(log.judge(2), EntryVerdict::kNew);
  EXPECT_EQ(log.taken(), 2U);
}

ShardEvent push_of(std::uint64_t slice, std::uint64_t version) {
  ShardEvent event{.kind = ShardEventKind::kPush};
  event.push.worker = MemberId{1};
  event.push.slice = slice;
  event.push.base_version = version;
  event.push.wanted = version + 1;
  event.loss = 1;
  event.microbatches = 1;
  return event;
}

TEST(ShardCore, AnswersARoundWhenItsLastSliceIsThere) {
  const SyncPlan plan =
      parse_phases("bsp", {.last_step = 2, .slices_per_step = 2, .samples_per_step = 8}).value();
  ShardCore core(plan, {.is_first = false});
  (void)core.take({.kind = ShardEventKind::kWorkers, .workers = {MemberId{1}}});
  EXPECT_FALSE(core.take(push_of(1, 0)).value().update.has_value());
  const ShardOutcome outcome = core.take(push_of(0, 0)).value();
  ASSERT_TRUE(outcome.update.has_value());
  EXPECT_EQ(outcome.update->slices, (std::vector<std::uint64_t>{0, 1}));
  EXPECT_EQ(outcome.answers, std::vector<MemberId>{MemberId{1}});
  EXPECT_EQ(core.take(push_of(0, 0)).value().fate, PushFate::kRepeat);
  EXPECT_EQ(core.repeats(), 1U);
}

TEST(ShardCore, NamesTheWorkersThatAreMembersNoMore) {
  const SyncPlan plan = parse_phases("asp", {.last_step = 2, .slices_per_step = 2}).value();
  ShardCore core(plan, {});
  (void)core.take({.kind = ShardEventKind::kWorkers, .workers = {MemberId{1}, MemberId{2}}});
  const ShardOutcome outcome =
      core.take({.kind = ShardEventKind::kWorkers, .workers = {MemberId{2}}}).value();
  EXPECT_EQ(outcome.departed, std::vector<MemberId>{MemberId{1}});
}

// Goal: no worker makes the job fall back. Method: an asynchronous phase that does not diverge, and
// a push with a rewind that would be possible there. Another shard must believe the worker.
TEST(ShardCore, OnlyTheTableOfLeasesDecidesOnTheFirstShardThatTheJobFallsBack) {
  const SyncPlan plan =
      parse_phases("bsp:2steps,asp", {.last_step = 6, .slices_per_step = 1}).value();
  for (const bool is_first : {true, false}) {
    ShardCore core(plan, {.is_first = is_first, .divergence = {.falls_back = true}});
    (void)core.take({.kind = ShardEventKind::kWorkers, .workers = {MemberId{1}}});
    for (std::uint64_t slice = 0; slice < 3; ++slice) {
      ASSERT_TRUE(core.take(push_of(slice, slice)).value().update.has_value()) << slice;
    }
    ShardEvent falls_back = push_of(3, 3);
    falls_back.rewind = Rewind{.at = 3, .to = 2};
    const Result<ShardOutcome> taken = core.take(falls_back);
    EXPECT_EQ(taken.ok() && taken.value().restore.has_value(), !is_first);
    EXPECT_EQ(core.plan().rewound().has_value(), !is_first);
    EXPECT_EQ(core.take(push_of(3, 3)).ok(), is_first) << "the phase goes on where it was";
  }
}

}  // namespace
}  // namespace mayfly::parameter_server
