// Views of the mpi transport: how they form, end, and follow each other.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/collectives/mpi_contract.hpp"
#include "tests/integration/collectives/test_cluster.hpp"

namespace mayfly::collectives {
namespace {

using test::expect_ok;
using test::far;
using test::member;
using test::MpiAbort;
using test::MpiContract;
using test::MpiRank;

bool is_loss(const Result<void>& result) {
  return !result.ok() &&
         (result.error().code == Errc::kAborted || result.error().code == Errc::kPeerLost);
}

TEST_F(MpiContract, AViewMayHaveFewerMembersAndAnotherOrder) {
  std::vector<std::uint32_t> members = self_.everybody();
  std::reverse(members.begin(), members.end());
  if (members.size() > 2) {
    members.erase(members.begin() + 1);
  }
  const auto group = self_.form(members);
  if (group != nullptr) {
    EXPECT_EQ(members[value(group->rank())], self_.rank());
    EXPECT_EQ(group->size(), members.size());
    std::int32_t one = 1;
    expect_ok(group->all_reduce(&one, 1, DataType::kInt32, ReduceOp::kSum)->wait(far()));
    EXPECT_EQ(one, static_cast<std::int32_t>(members.size()));
  }
  self_.meet(self_.everybody());
}

TEST_F(MpiContract, ALatePeerIsWaitedFor) {
  if (self_.rank() + 1 == self_.size()) {
    std::this_thread::sleep_for(milliseconds(50));
  }
  expect_ok(self_.form(self_.everybody())->barrier()->wait(far()));
}

TEST_F(MpiContract, FormingEndsAtTheDeadlineWhenAPeerIsMissing) {
  const auto everybody = self_.everybody();
  const GroupSpec spec = self_.next_spec(everybody);
  if (self_.rank() == 0 && self_.size() > 1) {
    const auto formed = self_.transport().form(spec, monotonic_now() + milliseconds(50));
    ASSERT_FALSE(formed.ok());
    EXPECT_EQ(formed.error().code, Errc::kDeadline);
    EXPECT_EQ(formed.error().culprit, member(1));
  }
  self_.meet(everybody);
  expect_ok(self_.form(everybody)->barrier()->wait(far()));
}

TEST_F(MpiContract, AMemberOfAnotherMpirunIsRefused) {
  GroupSpec spec = self_.next_spec(self_.everybody());
  spec.peers[0].address = "mpi:somewhere-else:0";
  const auto formed = self_.transport().form(spec, far());
  ASSERT_FALSE(formed.ok());
  EXPECT_EQ(formed.error().code, Errc::kInvalidInput);
  EXPECT_EQ(formed.error().culprit, member(0));
}

TEST_F(MpiContract, GivingUpOnAViewEndsItsFormationAndForbidsItLater) {
  const auto everybody = self_.everybody();
  const GroupSpec older = self_.next_spec(everybody);
  const GroupSpec spec = self_.next_spec(everybody);
  if (self_.rank() == 0 && self_.size() > 1) {
    std::thread other([&] {
      std::this_thread::sleep_for(milliseconds(20));
      self_.transport().give_up_on(spec.view);
    });
    for (const GroupSpec& view : {spec, older}) {
      const auto formed = self_.transport().form(view, far());
      ASSERT_FALSE(formed.ok());
      EXPECT_EQ(formed.error().code, Errc::kAborted);
    }
    other.join();
  }
  self_.meet(everybody);
  expect_ok(self_.form(everybody)->barrier()->wait(far()));
}

std::size_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// Every second view is aborted in mid-flight if that is possible. Its unfinished messages are
// removed when the members greet each other in the next view.
TEST_F(MpiContract, ReformingLeaksNeitherDescriptorsNorThreadsNorMemory) {
  constexpr std::size_t kMemoryMax = std::size_t{16} << 20;
  std::size_t descriptors = 0;
  std::size_t threads = 0;
  std::size_t memory = 0;
  for (int round = 0; round < 200; ++round) {
    const auto group = self_.form(self_.everybody());
    std::vector<std::int32_t> data(200000);
    const auto work = group->all_reduce(data.data(), data.size(), DataType::kInt32, ReduceOp::kSum);
    if (round % 2 == 0 && self_.elastic()) {
      group->abort();
    } else {
      expect_ok(work->wait(far()));
    }
    if (round == 40) {  // by now one-time allocations are made
      descriptors = entries_of("/proc/self/fd");
      threads = entries_of("/proc/self/task");
      memory = resident_bytes();
    }
  }
  EXPECT_LE(entries_of("/proc/self/fd"), descriptors);
  EXPECT_LE(entries_of("/proc/self/task"), threads);
  EXPECT_LE(resident_bytes(), memory + kMemoryMax);
}

// If a rank dies while one of its connections is being made, Open MPI on the other side may abort
// or hang. So all connections are made at the start, before any rank can be in a view.
TEST_F(MpiAbort, NoViewMakesAConnection) {
  const auto group = self_.form(self_.everybody());
  std::vector<std::int32_t> data(1 << 20);
  expect_ok(
      group->all_reduce(data.data(), data.size(), DataType::kInt32, ReduceOp::kSum)->wait(far()));
  EXPECT_EQ(MpiRank::sockets(), self_.sockets_at_start());
}

TEST_F(MpiAbort, DifferentOperationsAreFoundOut) {
  if (self_.size() != 2) {
    GTEST_SKIP() << "the others would wait for the one that found out";
  }
  const auto group = self_.form(self_.everybody());
  std::vector<std::int32_t> data(1000);
  const Result<void> result =
      group->all_reduce(data.data(), 1000 - self_.rank(), DataType::kInt32, ReduceOp::kSum)
          ->wait(far());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Errc::kCorrupt);
  EXPECT_EQ(result.error().culprit, member(1 - self_.rank()));
}

TEST_F(MpiAbort, AbortFreesAnOperationThatOnlyOneMemberHasStarted) {
  const auto everybody = self_.everybody();
  const auto group = self_.form(everybody);
  if (self_.rank() == 0) {
    std::vector<std::int32_t> data(1 << 20);
    const auto reduce =
        group->all_reduce(data.data(), data.size(), DataType::kInt32, ReduceOp::kSum);
    const auto barrier = group->barrier();
    group->abort();
    group->abort();
    const bool alone = self_.size() == 1;  // then the operation may be over already
    EXPECT_TRUE(is_loss(reduce->wait(far())) || alone);
    EXPECT_TRUE(is_loss(barrier->wait(far())) || alone);
    EXPECT_TRUE(is_loss(group->barrier()->wait(far())));
  }
  self_.meet(everybody);
}

// A second thread aborts each rank at another moment, as a control thread would. The next view is
// right.
TEST_F(MpiAbort, AbortFromAnotherThreadFreesEveryRankAtAnyMoment) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 40; ++round) {
    const auto group = self_.form(self_.everybody());
    std::int32_t one = 1;
    expect_ok(group->all_reduce(&one, 1, DataType::kInt32, ReduceOp::kSum)->wait(far()));
    EXPECT_EQ(one, static_cast<std::int32_t>(self_.size()));
    const auto delay = std::chrono::microseconds(random() % 5000);
    std::thread aborter([&] {
      std::this_thread::sleep_for(delay);  // only to vary the moment; any interleaving must pass
      group->abort();
    });
    const std::size_t count = round % 2 == 0 ? 10 : 300000;
    Result<void> result;
    while (result.ok()) {
      auto data = std::make_unique<std::vector<std::int32_t>>(count);
      result =
          group->all_reduce(data->data(), count, DataType::kInt32, ReduceOp::kSum)->wait(far());
    }  // the memory is freed as soon as wait() has returned
    EXPECT_TRUE(is_loss(result)) << result.error().detail;
    aborter.join();
    self_.meet(self_.everybody());
  }
}

}  // namespace
}  // namespace mayfly::collectives
