// What is leased to whom: single decisions of the desk. Whole jobs are in tests/sim.

#include "collectives/parameter_server/core/lease_desk.hpp"

#include <gtest/gtest.h>

namespace mayfly::parameter_server {
namespace {

const MemberId k1{1};
const MemberId k2{2};

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

}  // namespace
}  // namespace mayfly::parameter_server
