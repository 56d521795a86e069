// What is leased to whom: single decisions of the desk. Whole jobs are in tests/sim.

#include "collectives/parameter_server/core/lease_desk.hpp"

#include <gtest/gtest.h>

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

TEST(LeaseDesk, CountsTheUpdatesOfABackupPhaseFromItsBeginning) {
  SyncPlan plan = plan_of("bsp:50%,backup:2-of-3", 2, 2);
  LeaseDesk desk(plan, {});
  (void)desk.set_workers({k1});
  const Grants first = desk.connected(k1, 0);
  ASSERT_EQ(first.size(), 1u);
  ASSERT_EQ(first[0].lease.count, 2u);
  EXPECT_EQ(first[0].lease.version, 0u);
  (void)desk.applied({0, 1});
  (void)desk.confirmed(k1, first[0].lease.serial);
  const Grants second = desk.wants(k1);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].lease.first, 2u);
  EXPECT_EQ(second[0].lease.version, 1u) << "the first phase was one update";
}

/// On several shards, steps of one slice: the first worker has the leases of two successive steps
/// and is lost before it confirms one.
class LeaseDeskAfterALoss : public testing::Test {
 protected:
  void SetUp() override {
    (void)desk.set_workers({k1});
    ASSERT_EQ(desk.connected(k1, 0).size(), 1u);
    (void)desk.applied({0});
    const Grants next = desk.wants(k1);
    ASSERT_EQ(next.size(), 1u);
    ASSERT_EQ(next[0].lease.first, 1u);
  }

  SyncPlan plan = plan_of("bsp", 4, 1);
  LeaseDesk desk{plan, {.one_shard = false}};
};

TEST_F(LeaseDeskAfterALoss, LeasesTheLaterStepWhenTheEarlierOneIsOnEveryShard) {
  (void)desk.set_workers({k2, k3});
  const Grants now = desk.connected(k2, 0);
  ASSERT_EQ(now.size(), 1u) << "the second step's parameters are nowhere yet";
  EXPECT_EQ(now[0].lease.first, 0u);
  EXPECT_FALSE(now[0].lease.version) << "a shard may have gone on";
  EXPECT_TRUE(desk.connected(k3, 0).empty());
  const Grants then = desk.confirmed(k2, now[0].lease.serial);
  ASSERT_EQ(then.size(), 1u);
  EXPECT_EQ(then[0].lease.first, 1u);
}

TEST(LeaseDesk, GivesWhatAllWaitForToOneThatWaits) {
  SyncPlan plan = plan_of("bsp", 4, 1);
  LeaseDesk desk(plan, {.one_shard = false});
  (void)desk.set_workers({k1});
  (void)desk.connected(k1, 0);
  (void)desk.applied({0});
  (void)desk.set_workers({k1, k2});
  (void)desk.connected(k2, 0);
  const Grants next = desk.wants(k1);
  ASSERT_EQ(next.size(), 1u);
  ASSERT_EQ(next[0].worker, k2) << "it waits until the first step is on every shard";
  const Grants lost = desk.set_workers({k2});
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].worker, k2);
  EXPECT_EQ(lost[0].lease.first, 0u);
  EXPECT_FALSE(lost[0].lease.version);
}

}  // namespace
}  // namespace mayfly::parameter_server
