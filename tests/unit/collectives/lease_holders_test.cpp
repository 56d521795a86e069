// The bookkeeping behind the table of leases: which worker holds which leases, which slices were
// returned, and in which steps each slice was an update.

#include "collectives/parameter_server/core/lease_holders.hpp"

#include <gtest/gtest.h>

#include "collectives/parameter_server/core/returned_slices.hpp"
#include "collectives/parameter_server/core/streamed_steps.hpp"

namespace mayfly::parameter_server {
namespace {

constexpr MemberId kFirst{1};
constexpr MemberId kSecond{2};
constexpr MemberId kThird{3};

TEST(LeaseHolders, ServesThoseThatAskInTheirOrder) {
  LeaseHolders holders;
  (void)holders.set_workers({kFirst, kSecond, kThird});
  holders.asks(kThird);
  holders.asks(kFirst);
  holders.asks(kThird);  // its place stays that of its first request
  EXPECT_EQ(holders.asking(), (std::vector<MemberId>{kThird, kFirst}));
  (void)holders.grant(kThird, {.count = 1});
  EXPECT_EQ(holders.asking(), std::vector<MemberId>{kFirst}) << "a lease is what it asked for";
}

TEST(LeaseHolders, RepeatsLeasesThatWereLostWithAConnection) {
  LeaseHolders holders;
  (void)holders.set_workers({kFirst});
  EXPECT_TRUE(holders.connected(kFirst, 0).empty());
  const Lease first = holders.grant(kFirst, {.first = 0, .count = 2});
  const Lease second = holders.grant(kFirst, {.first = 2, .count = 2});
  EXPECT_EQ(first.serial, 1U);
  EXPECT_EQ(second.serial, 2U);
  EXPECT_EQ(holders.connected(kFirst, 1), std::vector<Lease>{second});
}

TEST(LeaseHolders, ForgetsLeasesThatAreConfirmedOrDropped) {
  LeaseHolders holders;
  (void)holders.set_workers({kFirst});
  const Lease first = holders.grant(kFirst, {.first = 0, .count = 2});
  (void)holders.grant(kFirst, {.first = 2, .count = 1});
  EXPECT_TRUE(holders.is_leased(1));
  EXPECT_EQ(holders.confirmed(kFirst, 1), std::vector<Lease>{first});
  EXPECT_FALSE(holders.is_leased(1));
  EXPECT_TRUE(holders.is_leased(2));
  holders.drop(kFirst, 2);
  EXPECT_FALSE(holders.is_leased(2));
}

TEST(LeaseHolders, ReturnsTheLeasesOfWorkersThatAreLost) {
  LeaseHolders holders;
  (void)holders.set_workers({kFirst, kSecond});
  const Lease lease = holders.grant(kFirst, {.first = 4, .count = 1});
  const auto gone = holders.set_workers({kSecond, kThird});
  ASSERT_EQ(gone.size(), 1U);
  EXPECT_EQ(gone.at(kFirst).leases, std::vector<Lease>{lease});
  EXPECT_FALSE(holders.contains(kFirst));
  EXPECT_TRUE(holders.contains(kThird));
}

TEST(LeaseHolders, AWorkerThatHadNothingToDoIsNotBehind) {
  LeaseHolders holders;
  (void)holders.set_workers({kFirst, kSecond});
  for (int i = 0; i < 3; ++i) {
    (void)holders.grant(kFirst, {.count = 2});
    (void)holders.confirmed(kFirst, static_cast<std::uint64_t>(i));
  }
  EXPECT_EQ(holders.grant(kSecond, {.count = 1}).clock, 4U)
      << "as the lease that the other one holds";
  EXPECT_EQ(holders.grant(kSecond, {.count = 1}).clock, 5U);
}

TEST(LeaseHolders, PrefersAHolderOfAVersionThatAsks) {
  LeaseHolders holders;
  (void)holders.set_workers({kFirst, kSecond, kThird});
  for (const MemberId id : {kFirst, kSecond}) {
    (void)holders.grant(id, {.count = 1, .version = 7});
  }
  EXPECT_EQ(holders.holder_of(7), kFirst);
  holders.asks(kSecond);
  EXPECT_EQ(holders.holder_of(7), kSecond);
  EXPECT_EQ(holders.holder_of(8), std::nullopt);
}

TEST(LeaseHolders, KnowsWhetherAWorkerIsAlone) {
  LeaseHolders holders;
  (void)holders.set_workers({kFirst, kSecond});
  (void)holders.connected(kFirst, 0);
  EXPECT_TRUE(holders.is_alone(kFirst)) << "the other one has not connected";
  (void)holders.connected(kSecond, 0);
  EXPECT_FALSE(holders.is_alone(kFirst));
}

TEST(ReturnedSlices, GoRatherToAnotherWorkerThanTheOneThatWasTooLate) {
  ReturnedSlices slices;
  slices.add_late(3, kFirst);
  slices.add(5);
  EXPECT_EQ(slices.first(), 3U);
  EXPECT_EQ(slices.first_for(kFirst), 5U);
  EXPECT_EQ(slices.first_for(kSecond), 3U);
  slices.remove(5);
  EXPECT_EQ(slices.first_for(kFirst), std::nullopt);
  EXPECT_TRUE(slices.has_before(4));
  EXPECT_FALSE(slices.has_before(3));
  slices.remove(3);
  EXPECT_TRUE(slices.empty());
  EXPECT_EQ(slices.first(), std::nullopt);
}

TEST(StreamedSteps, CountEachSliceAsAnUpdate) {
  const SyncPlan plan = parse_phases("bsp", {.last_step = 4, .slices_per_step = 3}).value();
  StreamedSteps streamed;
  EXPECT_FALSE(streamed.streams());
  streamed.change(true, 3);
  EXPECT_TRUE(streamed.streams());
  EXPECT_TRUE(streamed.contains(11)) << "until further notice";
  streamed.change(false, 9);
  streamed.change(false, 12);  // changes nothing
  EXPECT_FALSE(streamed.streams());
  EXPECT_FALSE(streamed.contains(2));
  EXPECT_TRUE(streamed.contains(3));
  EXPECT_FALSE(streamed.contains(9));
  EXPECT_EQ(streamed.more_updates(3, plan), 0U);
  EXPECT_EQ(streamed.more_updates(6, plan), 2U) << "three instead of one";
  EXPECT_EQ(streamed.more_updates(12, plan), 4U);
}

}  // namespace
}  // namespace mayfly::parameter_server
