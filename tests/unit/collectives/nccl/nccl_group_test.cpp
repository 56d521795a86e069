// The behaviour of the NCCL group beyond the contract of groups, on fake devices.

#include "collectives/nccl/nccl_transport.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "tests/unit/collectives/nccl/fake_members.hpp"

namespace mayfly::collectives {
namespace {

using test::FakeMembers;
using test::FakeStream;
using test::far;
using test::on_all;
using test::until;

using Ints = std::vector<std::int32_t>;

std::unique_ptr<Work> sum(Group& group, Ints& data) {
  return group.all_reduce(data.data(), data.size(), DataType::kInt32, ReduceOp::kSum);
}

Instant soon() {
  return monotonic_now() + milliseconds(5);
}

Errc code_of(const Result<void>& result) {
  EXPECT_FALSE(result.ok());
  return result.ok() ? Errc::kNotFound : result.error().code;
}

// Goal: when an operation has been reported as aborted, its buffer belongs to the caller. Method:
// the fake writes garbage into the buffer while the operation runs on the device, which is until
// abort() returns. The test delays that.
TEST(NcclGroup, AnAbortedOperationIsReportedOnlyOnceTheDeviceHasLeftItsBuffer) {
  FakeMembers members(2);
  auto groups = members.form(1, 2);
  Ints data(1000, 7);
  const auto work = sum(*groups[0], data);
  EXPECT_EQ(code_of(work->wait(soon())), Errc::kDeadline);
  members.fakes[0]->let_abort_finish(false);
  groups[0]->abort();
  until([&] { return members.fakes[0]->aborting(); });
  EXPECT_EQ(code_of(work->wait(soon())), Errc::kDeadline);
  members.fakes[0]->let_abort_finish(true);
  EXPECT_EQ(code_of(work->wait(far())), Errc::kAborted);
  std::fill(data.begin(), data.end(), 3);
  // The other member's part of the operation must not change this buffer either.
  Ints theirs(1000, 8);
  const auto their_work = sum(*groups[1], theirs);
  EXPECT_EQ(code_of(their_work->wait(far())), Errc::kPeerLost);
  EXPECT_EQ(data, Ints(1000, 3));
}

TEST(NcclGroup, ALostPeerIsNamedInAGroupOfTwoOnly) {
  FakeMembers members(3);
  for (const std::uint32_t size : {2U, 3U}) {
    auto groups = members.form(size, size);
    groups[size - 1].reset();
    Ints data(10);
    const Result<void> result = sum(*groups[0], data)->wait(far());
    ASSERT_EQ(code_of(result), Errc::kPeerLost);
    EXPECT_EQ(result.error().culprit.has_value(), size == 2);
    if (size == 2) {
      EXPECT_EQ(*result.error().culprit, MemberId{101});
    }
    EXPECT_NE(result.error().detail.find("as scripted"), std::string::npos);
    EXPECT_EQ(code_of(groups[0]->barrier()->wait(far())), Errc::kPeerLost) << "it sticks";
  }
}

TEST(NcclGroup, ASilentPeerIsWaitedForUntilSomebodyAborts) {
  FakeMembers members(2);
  for (auto* fake : members.fakes) {
    fake->script.sees_deaths = false;
  }
  auto groups = members.form(1, 2);
  groups[1].reset();
  Ints data(10);
  const auto first = sum(*groups[0], data);
  const auto second = groups[0]->barrier();
  EXPECT_EQ(code_of(first->wait(soon())), Errc::kDeadline);
  std::thread([&] { groups[0]->abort(); }).join();
  EXPECT_EQ(code_of(first->wait(far())), Errc::kAborted);
  EXPECT_EQ(code_of(second->wait(far())), Errc::kAborted);
  EXPECT_EQ(code_of(groups[0]->barrier()->wait(far())), Errc::kAborted);
}

TEST(NcclGroup, FailuresOfDeviceAndLibraryAreSaidInTheirWords) {
  for (const bool event : {false, true}) {
    FakeMembers members(1);
    auto groups = members.form(1, 1);
    auto& script = members.fakes[0]->script;
    (event ? script.event_answer : script.enqueue_answer) = NcclStatus::kDeviceError;
    Ints data(10);
    const Result<void> result = sum(*groups[0], data)->wait(far());
    EXPECT_EQ(code_of(result), Errc::kIo);
    EXPECT_NE(result.error().detail.find("GPU 0 (fake): CUDA error: as scripted"),
              std::string::npos)
        << result.error().detail;
    groups.clear();
    script = {};
  }
}

TEST(NcclGroup, WhatNcclCannotDoIsRefusedAndHurtsNothing) {
  EXPECT_TRUE(check_reduction(DataType::kBFloat16, ReduceOp::kSum).ok());
  EXPECT_TRUE(check_reduction(DataType::kFloat32, ReduceOp::kMax).ok());
  FakeMembers members(2);
  auto groups = members.form(1, 2);
  on_all(2, [&](std::uint32_t rank) {
    std::vector<std::int16_t> small(10);
    for (const auto& [type, op] : {std::pair(DataType::kInt16, ReduceOp::kSum),
                                   std::pair(DataType::kFloat16, ReduceOp::kMax),
                                   std::pair(DataType::kBFloat16, ReduceOp::kMax)}) {
      const auto refused = groups[rank]->all_reduce(small.data(), small.size(), type, op);
      EXPECT_EQ(code_of(refused->wait(far())), Errc::kUnsupported);
    }
    Ints data(10, 1);
    EXPECT_TRUE(sum(*groups[rank], data)->wait(far()).ok());
    EXPECT_EQ(data, Ints(10, 2));
  });
}

TEST(NcclGroup, AnOperationFollowsWhatItsStreamWasGivenBeforeAndNothingLater) {
  FakeMembers members(2);
  auto groups = members.form(1, 2);
  FakeStream compute;
  compute.add_work();
  ASSERT_TRUE(groups[0]->follow(compute.handle()).ok());
  Ints mine(10);
  Ints theirs(10, 5);
  const auto work = sum(*groups[0], mine);
  const auto their_work = sum(*groups[1], theirs);
  compute.add_work();  // later: not waited for
  EXPECT_EQ(code_of(work->wait(soon())), Errc::kDeadline);
  std::fill(mine.begin(), mine.end(), 4);  // what the first work computes
  compute.finish_work();
  EXPECT_TRUE(work->wait(far()).ok());
  EXPECT_TRUE(their_work->wait(far()).ok());
  EXPECT_EQ(mine, Ints(10, 9));
  // Only that one operation had to wait for the stream.
  const auto free = groups[0]->barrier();
  EXPECT_TRUE(groups[1]->barrier()->wait(far()).ok());
  EXPECT_TRUE(free->wait(far()).ok());
  compute.finish_work();
}

TEST(NcclGroup, IsFlushedWhenItIsIdleAndAbortedWhenItIsNot) {
  FakeMembers members(2);
  test::reset_fake_counts();
  auto groups = members.form(1, 2);
  groups.clear();
  EXPECT_EQ(test::fake_counts().destroys, 2);
  EXPECT_EQ(test::fake_counts().aborts, 0);
  groups = members.form(2, 2);
  Ints data(10);
  const auto work = sum(*groups[0], data);
  groups.clear();
  EXPECT_EQ(code_of(work->wait(far())), Errc::kAborted);
  EXPECT_EQ(test::fake_counts().destroys, 3);
  EXPECT_EQ(test::fake_counts().aborts, 1);
  EXPECT_EQ(test::fake_counts().live_comms, 0);
}

TEST(NcclGroup, EventsAreUsedAgainAndAllGivenBack) {
  const int before = test::fake_counts().live_events;
  {
    FakeMembers members(2);
    auto groups = members.form(1, 2);
    int after_some = 0;
    for (int round = 0; round < 200; ++round) {
      on_all(2, [&](std::uint32_t rank) {
        FakeStream compute;
        EXPECT_TRUE(groups[rank]->follow(compute.handle()).ok());
        EXPECT_TRUE(groups[rank]->barrier()->wait(far()).ok());
      });
      after_some = round == 20 ? test::fake_counts().live_events : after_some;
    }
    EXPECT_LE(test::fake_counts().live_events, after_some + 4);
  }
  EXPECT_EQ(test::fake_counts().live_events, before);
}

}  // namespace
}  // namespace mayfly::collectives
