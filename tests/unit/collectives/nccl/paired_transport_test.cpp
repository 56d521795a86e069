// Two groups as one: a failure of one also ends the other.

#include "collectives/nccl/paired_transport.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "collectives/tcp/tcp_transport.hpp"
#include "tests/unit/collectives/nccl/fake_members.hpp"

namespace mayfly::collectives {
namespace {

using test::FakeNccl;
using test::FakeStream;
using test::far;
using test::make_fake_nccl;
using test::MemoryStore;
using test::on_all;

/// Members with a pair of transports each: tcp, and a fake NCCL.
struct Pairs {
  explicit Pairs(std::uint32_t size) {
    for (std::uint32_t i = 0; i < size; ++i) {
      std::unique_ptr<FakeNccl> fake = make_fake_nccl();
      fakes.push_back(fake.get());
      transports.push_back(
          make_paired_transport(make_tcp_transport({}).value(),
                                make_nccl_transport(std::move(fake), "nccl:test").value()));
    }
  }

  [[nodiscard]] GroupSpec spec(std::uint64_t view, std::uint32_t rank) {
    GroupSpec made;
    made.view = ViewId{view};
    made.rank = Rank{rank};
    made.key = view + 1000;
    made.store = &store;
    for (std::uint32_t i = 0; i < transports.size(); ++i) {
      made.peers.push_back({MemberId{100 + i}, transports[i]->address()});
    }
    return made;
  }

  [[nodiscard]] std::vector<std::unique_ptr<Group>> form(std::uint64_t view) {
    std::vector<std::unique_ptr<Group>> groups(transports.size());
    on_all(static_cast<std::uint32_t>(transports.size()), [&](std::uint32_t rank) {
      groups[rank] = transports[rank]->form(spec(view, rank), far()).value();
    });
    return groups;
  }

  MemoryStore store;
  std::vector<FakeNccl*> fakes;  // owned by the transports
  std::vector<std::unique_ptr<Transport>> transports;
};

std::vector<std::int32_t> numbers(std::int32_t first) {
  std::vector<std::int32_t> made(1000);
  for (std::size_t i = 0; i < made.size(); ++i) {
    made[i] = first + static_cast<std::int32_t>(i);
  }
  return made;
}

TEST(PairedTransport, BothPartsReduceSideBySideInEveryView) {
  Pairs pairs(3);
  for (const std::uint64_t view : {1U, 2U}) {
    const std::vector<std::unique_ptr<Group>> groups = pairs.form(view);
    on_all(3, [&](std::uint32_t rank) {
      std::vector<std::int32_t> in_host_memory = numbers(static_cast<std::int32_t>(rank));
      std::vector<std::int32_t> on_device = numbers(10 * static_cast<std::int32_t>(rank));
      DeviceGroup& device = *groups[rank]->on_device();
      EXPECT_EQ(device.view(), ViewId{view});
      EXPECT_EQ(device.rank(), Rank{rank});
      const std::unique_ptr<Work> second =
          device.all_reduce(on_device.data(), on_device.size(), DataType::kInt32, ReduceOp::kSum);
      const std::unique_ptr<Work> first = groups[rank]->all_reduce(
          in_host_memory.data(), in_host_memory.size(), DataType::kInt32, ReduceOp::kSum);
      EXPECT_TRUE(first->wait(far()).ok());
      EXPECT_TRUE(second->wait(far()).ok());
      EXPECT_EQ(in_host_memory[7], 3 * 7 + 0 + 1 + 2);
      EXPECT_EQ(on_device[7], 3 * 7 + 0 + 10 + 20);
    });
  }
}

TEST(PairedTransport, OperationsOnTheDeviceFollowAStream) {
  Pairs pairs(1);
  const std::vector<std::unique_ptr<Group>> groups = pairs.form(1);
  DeviceGroup& device = *groups[0]->on_device();
  std::vector<std::int32_t> data = numbers(0);
  FakeStream before;
  before.add_work();
  ASSERT_TRUE(device.follow(before.handle()).ok());
  const std::unique_ptr<Work> work =
      device.all_reduce(data.data(), data.size(), DataType::kInt32, ReduceOp::kSum);
  EXPECT_EQ(work->wait(monotonic_now() + milliseconds(20)).error().code, Errc::kDeadline);
  before.finish_work();
  EXPECT_TRUE(work->wait(far()).ok());
}

TEST(PairedTransport, AnAbortEndsWhatRunsInEitherPart) {
  Pairs pairs(2);
  const std::vector<std::unique_ptr<Group>> groups = pairs.form(1);
  std::array<std::vector<std::int32_t>, 2> data = {numbers(0), numbers(0)};
  // Member 1 starts no operation, so member 0 waits in both groups.
  const std::unique_ptr<Work> on_device = groups[0]->on_device()->all_reduce(
      data[0].data(), data[0].size(), DataType::kInt32, ReduceOp::kSum);
  const std::unique_ptr<Work> in_host_memory =
      groups[0]->all_reduce(data[1].data(), data[1].size(), DataType::kInt32, ReduceOp::kSum);
  groups[0]->abort();
  EXPECT_EQ(on_device->wait(far()).error().code, Errc::kAborted);
  EXPECT_EQ(in_host_memory->wait(far()).error().code, Errc::kAborted);
}

TEST(PairedTransport, AFailureInHostMemoryFreesWhoWaitsForTheDevice) {
  Pairs pairs(2);
  for (FakeNccl* fake : pairs.fakes) {
    fake->script.sees_deaths = false;  // as over NVLink: only TCP detects the death
  }
  std::vector<std::unique_ptr<Group>> groups = pairs.form(1);
  std::array<std::vector<std::int32_t>, 2> data = {numbers(0), numbers(0)};
  const std::unique_ptr<Work> on_device = groups[0]->on_device()->all_reduce(
      data[0].data(), data[0].size(), DataType::kInt32, ReduceOp::kSum);
  const std::unique_ptr<Work> in_host_memory =
      groups[0]->all_reduce(data[1].data(), data[1].size(), DataType::kInt32, ReduceOp::kSum);
  groups[1]->abort();
  groups[1].reset();
  EXPECT_FALSE(in_host_memory->wait(far()).ok());
  EXPECT_FALSE(on_device->wait(far()).ok());
}

TEST(PairedTransport, AFailureOfTheDeviceFreesWhoWaitsInHostMemory) {
  Pairs pairs(2);
  std::vector<std::unique_ptr<Group>> groups = pairs.form(1);
  std::array<std::vector<std::int32_t>, 2> data = {numbers(0), numbers(0)};
  pairs.fakes[0]->script.enqueue_answer = NcclStatus::kInternalError;
  const std::unique_ptr<Work> on_device = groups[0]->on_device()->all_reduce(
      data[0].data(), data[0].size(), DataType::kInt32, ReduceOp::kSum);
  const std::unique_ptr<Work> in_host_memory =
      groups[0]->all_reduce(data[1].data(), data[1].size(), DataType::kInt32, ReduceOp::kSum);
  EXPECT_FALSE(on_device->wait(far()).ok());
  EXPECT_FALSE(in_host_memory->wait(far()).ok());
}

TEST(PairedTransport, AViewThatIsGivenUpIsFormedByNeitherPart) {
  Pairs pairs(2);
  pairs.transports[0]->give_up_on(ViewId{1});
  Result<std::unique_ptr<Group>> formed = pairs.transports[0]->form(pairs.spec(1, 0), far());
  ASSERT_FALSE(formed.ok());
  EXPECT_EQ(formed.error().code, Errc::kAborted);
  const std::vector<std::unique_ptr<Group>> next = pairs.form(2);  // the next view is formed
  EXPECT_NE(next[0]->on_device(), nullptr);
}

TEST(PairedTransport, WhatTheDeviceCannotFormIsNotFormed) {
  Pairs pairs(1);
  pairs.fakes[0]->script.init_answer = NcclStatus::kSystemError;
  Result<std::unique_ptr<Group>> formed = pairs.transports[0]->form(pairs.spec(1, 0), far());
  EXPECT_FALSE(formed.ok());
  pairs.fakes[0]->script.init_answer.reset();
  EXPECT_TRUE(pairs.transports[0]->form(pairs.spec(2, 0), far()).ok());
}

}  // namespace
}  // namespace mayfly::collectives
