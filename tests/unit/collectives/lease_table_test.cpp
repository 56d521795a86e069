// Single decisions of the table: which slices it leases to which worker. Whole jobs are in
// tests/sim.

#include "collectives/parameter_server/core/lease_table.hpp"

#include <gtest/gtest.h>

#include <map>
#include <utility>

namespace mayfly::parameter_server {
namespace {

const MemberId k1{1};
const MemberId k2{2};
const MemberId k3{3};

SyncPlan plan_of(const char* phases, std::uint64_t steps, std::uint32_t slices_per_step) {
  return parse_phases(phases, {.last_step = steps,
                               .slices_per_step = slices_per_step,
                               .samples_per_step = 4 * std::uint64_t{slices_per_step}})
      .value();
}

TEST(LeaseTable, CountsTheUpdatesOfABackupPhaseFromItsBeginning) {
  SyncPlan plan = plan_of("bsp:50%,backup:2-of-3", 2, 2);
  LeaseTable table(plan, {});
  (void)table.set_workers({k1});
  const Grants first = table.connected(k1, 0);
  ASSERT_EQ(first.size(), 1u);
  ASSERT_EQ(first[0].lease.count, 2u);
  EXPECT_EQ(first[0].lease.version, 0u);
  (void)table.applied({0, 1});
  (void)table.confirmed(k1, first[0].lease.serial);
  const Grants second = table.wants(k1);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].lease.first, 2u);
  EXPECT_EQ(second[0].lease.version, 1u) << "the first phase was one update";
}

/// A job with several shards and steps of one slice. The first worker has the leases of two
/// successive steps and is lost before it confirms either.
class LeaseTableAfterALoss : public testing::Test {
 protected:
  void SetUp() override {
    (void)table.set_workers({k1});
    ASSERT_EQ(table.connected(k1, 0).size(), 1u);
    (void)table.applied({0});
    const Grants next = table.wants(k1);
    ASSERT_EQ(next.size(), 1u);
    ASSERT_EQ(next[0].lease.first, 1u);
  }

  SyncPlan plan = plan_of("bsp", 4, 1);
  LeaseTable table{plan, {.one_shard = false}};
};

TEST_F(LeaseTableAfterALoss, LeasesTheLaterStepWhenTheEarlierOneIsOnEveryShard) {
  (void)table.set_workers({k2, k3});
  const Grants now = table.connected(k2, 0);
  ASSERT_EQ(now.size(), 1u) << "the second step's parameters are nowhere yet";
  EXPECT_EQ(now[0].lease.first, 0u);
  EXPECT_FALSE(now[0].lease.version) << "a shard may have gone on";
  EXPECT_TRUE(table.connected(k3, 0).empty());
  const Grants then = table.confirmed(k2, now[0].lease.serial);
  ASSERT_EQ(then.size(), 1u);
  EXPECT_EQ(then[0].lease.first, 1u);
}

TEST(LeaseTable, GivesWhatAllWaitForToOneThatWaits) {
  SyncPlan plan = plan_of("bsp", 4, 1);
  LeaseTable table(plan, {.one_shard = false});
  (void)table.set_workers({k1});
  (void)table.connected(k1, 0);
  (void)table.applied({0});
  (void)table.set_workers({k1, k2});
  (void)table.connected(k2, 0);
  const Grants next = table.wants(k1);
  ASSERT_EQ(next.size(), 1u);
  ASSERT_EQ(next[0].worker, k2) << "it waits until the first step is on every shard";
  const Grants lost = table.set_workers({k2});
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].worker, k2);
  EXPECT_EQ(lost[0].lease.first, 0u);
  EXPECT_FALSE(lost[0].lease.version);
}

TEST(LeaseTable, GivesASliceThatCameTooLateToWhoWaits) {
  SyncPlan plan = plan_of("backup:2-of-3", 1, 4);
  LeaseTable table(plan, {});
  (void)table.set_workers({k1, k2, k3});
  for (const MemberId worker : {k1, k2, k3}) {
    ASSERT_EQ(table.connected(worker, 0).size(), 1u);
  }
  table.staged(0);
  table.staged(1);
  (void)table.applied({0, 1});
  ASSERT_EQ(table.wants(k1).size(), 1u) << "the last slice that nobody has had";
  EXPECT_TRUE(table.wants(k2).empty());
  const Grants again = table.dropped(k3, 2);  // k3 has not asked for a lease
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].worker, k2);
  EXPECT_EQ(again[0].lease.first, 2u);
  EXPECT_EQ(again[0].lease.version, 1u);
  EXPECT_EQ(table.late(), 1u);
  EXPECT_TRUE(table.confirmed(k3, 1).empty()) << "another worker has it";
  EXPECT_TRUE(table.dropped(k3, 2).empty()) << "pushed again over a new connection";
  EXPECT_TRUE(table.wants(k3).empty());
  EXPECT_EQ(table.reissued(), 0u) << "no worker was lost";
  const Grants lost = table.set_workers({k1, k3});
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].lease.first, 2u);
  EXPECT_EQ(table.reissued(), 1u);
}

TEST(LeaseTable, GivesASliceThatCameTooLateToAnotherWorkerIfThereIsOne) {
  SyncPlan plan = plan_of("backup:1-of-2", 3, 2);
  LeaseTable table(plan, {});
  (void)table.set_workers({k1, k2});
  ASSERT_EQ(table.connected(k1, 0).size(), 1u);
  ASSERT_EQ(table.connected(k2, 0).size(), 1u);
  table.staged(0);
  (void)table.applied({0});
  ASSERT_TRUE(table.dropped(k2, 1).empty()) << "nobody waits";
  const Grants slow = table.wants(k2);
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].lease.first, 2u) << "the next one instead";
  const Grants fast = table.wants(k1);
  ASSERT_EQ(fast.size(), 1u);
  EXPECT_EQ(fast[0].lease.first, 1u);
}

TEST(LeaseTable, GivesASliceThatCameTooLateToTheSameWorkerIfItIsAlone) {
  SyncPlan plan = plan_of("backup:1-of-2", 1, 2);
  LeaseTable table(plan, {});
  (void)table.set_workers({k1, k2});
  ASSERT_EQ(table.connected(k1, 0).size(), 1u);
  ASSERT_EQ(table.connected(k2, 0).size(), 1u);
  table.staged(0);
  (void)table.applied({0});
  (void)table.dropped(k2, 1);
  const Grants again = table.wants(k2);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].lease.first, 1u);
}

/// Otherwise the returned slices of a worker that is alone and late once in each round accumulate,
/// and it must compute all of them before its phase can end or the job can stop.
TEST(LeaseTable, AWorkerThatIsAloneCatchesUpBeforeItGoesOn) {
  SyncPlan plan = plan_of("backup:1-of-2", 3, 2);
  LeaseTable table(plan, {});
  (void)table.set_workers({k1, k2});
  ASSERT_EQ(table.connected(k1, 0).size(), 1u);
  ASSERT_EQ(table.connected(k2, 0).size(), 1u);
  table.staged(0);
  (void)table.applied({0});
  (void)table.dropped(k2, 1);
  (void)table.set_workers({k2});
  const Grants again = table.wants(k2);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].lease.first, 1u) << "not a new one";
}

/// After a connection that broke, the worker has asked once more than it has pushed.
TEST(LeaseTable, AWorkerThatIsAloneGetsNoSliceForWhichItWouldBeTooLate) {
  SyncPlan plan = plan_of("backup:3-of-4", 2, 3);
  LeaseTable table(plan, {});
  (void)table.set_workers({k1});
  ASSERT_EQ(table.connected(k1, 0).size(), 1u);
  ASSERT_EQ(table.wants(k1).size(), 1u) << "the second slice";
  table.staged(0);
  ASSERT_EQ(table.wants(k1).size(), 1u) << "the third";
  table.staged(1);
  EXPECT_TRUE(table.wants(k1).empty()) << "the round needs only the third, which is under way";
  table.staged(2);
  const Grants next = table.applied({0, 1, 2});
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].lease.first, 3u);
  EXPECT_EQ(next[0].lease.version, 1u);
}

TEST(LeaseTable, HasEveryWorkerDoOneSliceOfARoundAndMoreOnlyIfAllWait) {
  SyncPlan plan = plan_of("backup:2-of-3", 4, 2);
  LeaseTable table(plan, {});
  (void)table.set_workers({k1, k2, k3});
  for (const MemberId worker : {k1, k2, k3}) {
    ASSERT_EQ(table.connected(worker, 0).size(), 1u);
  }
  table.staged(0);
  EXPECT_TRUE(table.wants(k1).empty()) << "it has done its part of this round";
  table.staged(1);
  const Grants next = table.applied({0, 1});
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].worker, k1);
  EXPECT_EQ(next[0].lease.first, 3u);
  EXPECT_EQ(next[0].lease.version, 1u);
  EXPECT_EQ(table.set_workers({k1, k2}).size(), 0u);
  EXPECT_EQ(table.reissued(), 1u);
  const Grants lost = table.wants(k2);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].lease.first, 2u) << "what a lost worker had comes first";
}

/// One worker has done three slices alone, in a phase that limits how many slices a worker may be
/// ahead of the slowest one.
class LeaseTableClocks : public testing::Test {
 protected:
  void SetUp() override {
    (void)table.set_workers({k1});
    ASSERT_EQ(table.connected(k1, 0).size(), 1u);
    for (std::uint64_t slice = 0; slice < 3; ++slice) {
      last = next_of(k1, slice);
    }
    ASSERT_EQ(last.clock, 3u);
  }
  /// The worker completes its newest lease, which is of this slice. Returns its next lease.
  Lease next_of(MemberId worker, std::uint64_t slice) {
    (void)table.applied({slice});
    (void)table.confirmed(worker, ++serials[worker]);
    const Grants grants = table.wants(worker);
    EXPECT_EQ(grants.size(), 1u);
    return grants.empty() ? Lease{} : grants[0].lease;
  }

  SyncPlan plan = plan_of("ssp:1", 40, 1);
  LeaseTable table{plan, {}};
  Lease last;
  std::map<MemberId, std::uint64_t> serials;
};

TEST_F(LeaseTableClocks, OneThatJoinsLaterIsNoneThatTheOthersWaitFor) {
  (void)table.set_workers({k1, k2});
  const Grants joined = table.connected(k2, 0);
  ASSERT_EQ(joined.size(), 1u);
  EXPECT_EQ(joined[0].lease.clock, 3u);
  EXPECT_EQ(next_of(k2, joined[0].lease.first).clock, 4u);
}

TEST_F(LeaseTableClocks, OneThatHadNoWorkIsNoneThatTheOthersWaitFor) {
  (void)table.set_workers({k1, k2});
  const Grants joined = table.connected(k2, 0);
  ASSERT_EQ(joined.size(), 1u);
  for (int i = 0; i < 4; ++i) {
    last = next_of(k1, last.first);
  }
  ASSERT_EQ(last.clock, 7u);
  (void)table.applied({joined[0].lease.first});
  const Grants rested = table.rested(k2, joined[0].lease.serial);
  ASSERT_EQ(rested.size(), 1u);
  EXPECT_EQ(rested[0].lease.clock, 7u);
}

TEST_F(LeaseTableClocks, WhatAWorkerIsBehindIsNotForgotten) {
  (void)table.set_workers({k1, k2});
  const Grants joined = table.connected(k2, 0);
  ASSERT_EQ(joined.size(), 1u);
  for (int i = 0; i < 4; ++i) {
    last = next_of(k1, last.first);
  }
  EXPECT_EQ(next_of(k2, joined[0].lease.first).clock, 4u) << "the other one is at 7";
}

TEST_F(LeaseTableClocks, OneThatIsAheadAndRestedIsStillAhead) {
  (void)table.set_workers({k1, k2});
  const Grants joined = table.connected(k2, 0);  // its clock stays 3
  ASSERT_EQ(joined.size(), 1u);
  last = next_of(k1, last.first);
  ASSERT_EQ(last.clock, 4u);
  (void)table.applied({last.first});
  const Grants rested = table.rested(k1, last.serial);
  ASSERT_EQ(rested.size(), 1u);
  EXPECT_EQ(rested[0].lease.clock, 5u);
}

TEST(LeaseTable, RepeatsToAWorkerThatConnectsAgainWhatItDidNotReceive) {
  SyncPlan plan = plan_of("asp", 40, 1);
  LeaseTable table(plan, {});
  (void)table.set_workers({k1});
  const Grants first = table.connected(k1, 0);
  const Grants second = table.wants(k1);
  ASSERT_EQ(second.size(), 1u);
  ASSERT_EQ(second[0].lease.serial, 2u);
  const Grants one = table.connected(k1, 1);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].lease, second[0].lease);
  EXPECT_TRUE(table.connected(k1, 2).empty());
  EXPECT_EQ(table.connected(k1, 0).size(), 2u);
  EXPECT_TRUE(table.connected(k3, 0).empty()) << "no member of the view";
}

TEST(LeaseTable, HeldBeginsNoStepAndGoesOnWhereItWas) {
  SyncPlan plan = plan_of("asp", 10, 2);
  LeaseTable table(plan, {});
  (void)table.set_workers({k1});
  ASSERT_EQ(table.connected(k1, 0).size(), 1u);
  table.hold();
  const Grants rest_of_step = table.wants(k1);
  ASSERT_EQ(rest_of_step.size(), 1u) << "a step that was begun is completed";
  EXPECT_EQ(rest_of_step[0].lease.first, 1u);
  EXPECT_TRUE(table.wants(k1).empty());
  EXPECT_FALSE(table.is_quiet());
  (void)table.applied({0});
  (void)table.applied({1});
  EXPECT_TRUE(table.is_quiet());
  const Grants next = table.go_on();
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].lease.first, 2u);
  EXPECT_FALSE(table.is_quiet());
}

TEST(LeaseTable, ShowsSpeedsWhereNobodyWaitsForAnotherInTheMiddleOfASlice) {
  for (const auto& [phases, shows] :
       {std::pair("bsp", true), {"asp", true}, {"ssp:1", false}, {"backup:2-of-3", false}}) {
    SyncPlan plan = plan_of(phases, 2, 2);
    EXPECT_EQ(LeaseTable(plan, {}).shows_speeds(), shows) << phases;
  }
}

TEST(LeaseTable, OneWorkerRecordsTheEndAndThenTheJobIsOver) {
  SyncPlan plan = plan_of("asp", 1, 1);
  LeaseTable table(plan, {});
  (void)table.set_workers({k1, k2});
  ASSERT_EQ(table.connected(k1, 0).size(), 1u);
  EXPECT_TRUE(table.connected(k2, 0).empty());
  const Grants end = table.applied({0});
  ASSERT_EQ(end.size(), 1u);
  EXPECT_EQ(end[0].worker, k2);
  EXPECT_EQ(end[0].lease.kind, LeaseKind::kSnapshot);
  EXPECT_EQ(end[0].lease.first, 1u);
  EXPECT_TRUE(table.wants(k1).empty()) << "one is enough";
  EXPECT_FALSE(table.is_over());
  const Grants anew = table.set_workers({k1});
  ASSERT_EQ(anew.size(), 1u) << "the other one is lost";
  EXPECT_EQ(anew[0].worker, k1);
  EXPECT_EQ(anew[0].lease.kind, LeaseKind::kSnapshot);
  (void)table.confirmed(k1, anew[0].lease.serial);
  EXPECT_TRUE(table.is_over());
  EXPECT_FALSE(table.shows_speeds());
  const Grants over = table.wants(k1);
  ASSERT_EQ(over.size(), 1u);
  EXPECT_EQ(over[0].lease.kind, LeaseKind::kOver);
}

TEST(LeaseTable, HasNothingForWhoIsNoWorkerOfTheView) {
  SyncPlan plan = plan_of("bsp", 4, 1);
  LeaseTable table(plan, {});
  (void)table.set_workers({k1});
  EXPECT_TRUE(table.connected(k2, 0).empty());
  EXPECT_TRUE(table.confirmed(k2, 1).empty());
  EXPECT_EQ(table.connected(k1, 0).size(), 1u);
}

}  // namespace
}  // namespace mayfly::parameter_server
