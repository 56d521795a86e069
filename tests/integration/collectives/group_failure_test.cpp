// The promises that every Group and Transport keeps when members die, leave or are told to stop.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "collectives/group.hpp"
#include "tests/integration/collectives/test_cluster.hpp"

namespace mayfly::collectives {
namespace {

using test::Cluster;
using test::far;
using test::Kind;
using test::member;
using test::on_all;

class GroupFailure : public testing::TestWithParam<Kind> {
 protected:
  static int rounds(int wanted) { return GetParam() == Kind::kGloo ? wanted / 4 : wanted; }
};

// Runs all-reduces until one fails; returns that error. `count` elements of int32 each.
Error reduce_until_failure(Group& group, std::size_t count) {
  std::vector<std::int32_t> data(count);
  while (true) {
    const auto work = group.all_reduce(data.data(), count, DataType::kInt32, ReduceOp::kSum);
    const Result<void> result = work->wait(far());
    if (!result.ok()) {
      return result.error();
    }
  }
}

bool is_loss(Errc code) {
  return code == Errc::kAborted || code == Errc::kPeerLost;
}

std::size_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// Waits until the folder has at most so many entries. The kernel may still show a thread for a
// moment after it was joined.
bool settles_at(const char* folder, std::size_t expected) {
  const Instant hang = far();
  while (entries_of(folder) > expected && monotonic_now() < hang) {
    std::this_thread::yield();
  }
  return entries_of(folder) <= expected;
}

// Goal: abort() from another thread ends every operation at any moment.
// Method: all ranks reduce in a loop; each is aborted at a random moment, as a control thread
// would.
TEST_P(GroupFailure, AbortFromAnotherThreadFreesEveryRankAtAnyMoment) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr std::uint32_t kSize = 3;
  Cluster cluster(GetParam(), kSize);
  for (int round = 1; round <= rounds(40); ++round) {
    auto groups = cluster.form(ViewId{static_cast<std::uint64_t>(round)}, kSize);
    const std::size_t count = round % 2 == 0 ? 10 : 300000;
    const auto delay = std::chrono::microseconds(random() % 5000);
    std::thread aborter([&] {
      std::this_thread::sleep_for(delay);  // only to vary the moment; any interleaving must pass
      for (auto& group : groups) {
        group->abort();
      }
    });
    on_all(kSize, [&](std::uint32_t rank) {
      EXPECT_TRUE(is_loss(reduce_until_failure(*groups[rank], count).code));
      // All later operations fail, too.
      EXPECT_TRUE(is_loss(reduce_until_failure(*groups[rank], 1).code));
    });
    aborter.join();
  }
}

TEST_P(GroupFailure, AbortFailsOperationsThatOnlyOneMemberHasStarted) {
  Cluster cluster(GetParam(), 3);
  auto groups = cluster.form(ViewId{1}, 3);
  std::vector<std::int32_t> data(100000);
  const auto reduce =
      groups[0]->all_reduce(data.data(), data.size(), DataType::kInt32, ReduceOp::kSum);
  const auto barrier = groups[0]->barrier();
  groups[0]->abort();
  groups[0]->abort();
  for (const auto* work : {&reduce, &barrier}) {
    const Result<void> result = (*work)->wait(far());
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Errc::kAborted);
  }
}

TEST_P(GroupFailure, AGroupOfOneCanBeAbortedToo) {
  Cluster cluster(GetParam(), 1);
  auto groups = cluster.form(ViewId{1}, 1);
  EXPECT_TRUE(groups[0]->barrier()->wait(far()).ok());
  groups[0]->abort();
  const Result<void> result = groups[0]->barrier()->wait(far());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Errc::kAborted);
}

// Goal: if a member vanishes during an operation, the survivors' operations end, and the survivors
// form the next view.
// Method: one member destroys group and transport at a random moment. As soon as another member
// reports that, the test aborts all of them, as the coordinator would; then they form a view
// without the first member.
TEST_P(GroupFailure, SurvivorsOfAVanishedMemberGoOnWithoutIt) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < rounds(20); ++round) {
    constexpr std::uint32_t kSize = 4;
    Cluster cluster(GetParam(), kSize);
    auto groups = cluster.form(ViewId{1}, kSize);
    const std::uint32_t victim = random() % kSize;
    const unsigned last = random() % 4;
    std::atomic<bool> told{false};
    on_all(kSize, [&](std::uint32_t rank) {
      if (rank == victim) {
        std::vector<std::int32_t> data(200000);
        for (unsigned i = 0; i < last; ++i) {
          const auto work =
              groups[rank]->all_reduce(data.data(), data.size(), DataType::kInt32, ReduceOp::kSum);
          (void)work->wait(far());
        }
        const auto work =
            groups[rank]->all_reduce(data.data(), data.size(), DataType::kInt32, ReduceOp::kSum);
        groups[rank].reset();
        cluster.transports[rank].reset();
        return;
      }
      const Error error = reduce_until_failure(*groups[rank], 200000);
      EXPECT_TRUE(is_loss(error.code)) << error.detail;
      if (!told.exchange(true)) {
        for (std::uint32_t other = 0; other < kSize; ++other) {
          if (other != victim) {
            groups[other]->abort();
          }
        }
      }
    });
    groups.clear();
    std::vector<std::uint32_t> survivors;
    for (std::uint32_t i = 0; i < kSize; ++i) {
      if (i != victim) {
        survivors.push_back(i);
      }
    }
    auto next = cluster.form(ViewId{2}, survivors);
    on_all(kSize - 1, [&](std::uint32_t rank) {
      std::int32_t one = 1;
      const auto work = next[rank]->all_reduce(&one, 1, DataType::kInt32, ReduceOp::kSum);
      EXPECT_TRUE(work->wait(far()).ok());
      EXPECT_EQ(one, 3);
    });
  }
}

TEST_P(GroupFailure, TheNeighboursOfALostMemberNameIt) {
  Cluster cluster(GetParam(), 2);
  auto groups = cluster.form(ViewId{1}, 2);
  groups[1].reset();
  const Error error = reduce_until_failure(*groups[0], 100000);
  EXPECT_EQ(error.code, Errc::kPeerLost);
  ASSERT_TRUE(error.culprit.has_value());
  EXPECT_EQ(*error.culprit, member(1));
}

TEST_P(GroupFailure, FormingEndsAtTheDeadlineWhenAPeerIsMissing) {
  Cluster cluster(GetParam(), 2);
  const auto formed = cluster.transports[0]->form(cluster.spec(ViewId{1}, {0, 1}, 0),
                                                  monotonic_now() + milliseconds(50));
  ASSERT_FALSE(formed.ok());
  EXPECT_EQ(formed.error().code, Errc::kDeadline);
  EXPECT_EQ(formed.error().culprit, member(1));
}

TEST_P(GroupFailure, GivingUpOnAViewEndsItsFormationAndForbidsItLater) {
  Cluster cluster(GetParam(), 2);
  std::atomic<bool> forming{false};
  std::thread other([&] {
    while (!forming) {
      std::this_thread::yield();
    }
    cluster.transports[0]->give_up_on(ViewId{5});
  });
  forming = true;
  const auto running = cluster.transports[0]->form(cluster.spec(ViewId{5}, {0, 1}, 0), far());
  other.join();
  ASSERT_FALSE(running.ok());
  EXPECT_EQ(running.error().code, Errc::kAborted);
  const auto older = cluster.transports[0]->form(cluster.spec(ViewId{4}, {0, 1}, 0), far());
  ASSERT_FALSE(older.ok());
  EXPECT_EQ(older.error().code, Errc::kAborted);
  cluster.transports[1]->give_up_on(ViewId{5});
  EXPECT_EQ(cluster.form(ViewId{6}, 2).size(), 2U);
}

TEST_P(GroupFailure, ALatePeerIsWaitedFor) {
  Cluster cluster(GetParam(), 3);
  std::atomic<int> formed{0};
  on_all(3, [&](std::uint32_t rank) {
    if (rank == 2) {
      std::this_thread::sleep_for(milliseconds(100));
    }
    const auto group =
        cluster.transports[rank]->form(cluster.spec(ViewId{1}, {0, 1, 2}, rank), far());
    ASSERT_TRUE(group.ok()) << group.error().detail;
    ++formed;
    EXPECT_TRUE(group.value()->barrier()->wait(far()).ok());
  });
  EXPECT_EQ(formed, 3);
}

TEST_P(GroupFailure, AFailedFormationDoesNotDisturbTheNextOne) {
  constexpr std::uint32_t kSize = 3;
  Cluster cluster(GetParam(), kSize);
  for (std::uint64_t view = 1; view <= 6; view += 2) {
    // Two of three members try to form the group, and are aborted at different moments.
    on_all(2, [&](std::uint32_t rank) {
      const auto formed =
          cluster.transports[rank]->form(cluster.spec(ViewId{view}, {0, 1, 2}, rank),
                                         monotonic_now() + milliseconds(20 + 30 * rank));
      EXPECT_FALSE(formed.ok());
    });
    auto groups = cluster.form(ViewId{view + 1}, kSize);
    on_all(kSize,
           [&](std::uint32_t rank) { EXPECT_TRUE(groups[rank]->barrier()->wait(far()).ok()); });
  }
}

// Goal: a group does not access the buffer of a failed operation, so that the buffer's owner may
// reuse it at once.
// Method: after wait() has failed the buffer is filled with a pattern, while the other members go
// on for a while; the pattern must not change.
TEST_P(GroupFailure, ABufferIsNeverTouchedAfterItsOperationHasFailed) {
  constexpr std::uint32_t kSize = 3;
  Cluster cluster(GetParam(), kSize);
  for (std::uint64_t view = 1; view <= static_cast<std::uint64_t>(rounds(20)); ++view) {
    auto groups = cluster.form(ViewId{view}, kSize);
    on_all(kSize, [&](std::uint32_t rank) {
      std::vector<std::int32_t> data(400000, 1);
      const auto work =
          groups[rank]->all_reduce(data.data(), data.size(), DataType::kInt32, ReduceOp::kSum);
      if (rank == 0) {
        groups[0]->abort();
      }
      const Result<void> done = work->wait(monotonic_now() + milliseconds(2));
      if (!done.ok() && done.error().code != Errc::kDeadline) {
        std::fill(data.begin(), data.end(), 7);
        std::this_thread::sleep_for(milliseconds(2));  // time for a late write
        EXPECT_TRUE(std::all_of(data.begin(), data.end(), [](auto v) { return v == 7; }));
      }
      groups[rank]->abort();
      (void)work->wait(far());
    });
  }
}

// Whether another process would find that this one has a record lock on the file.
bool is_locked_by_this_process(int file) {
  const pid_t child = ::fork();
  if (child == 0) {
    struct flock wanted {};
    wanted.l_type = F_WRLCK;
    const bool is_known = ::fcntl(file, F_GETLK, &wanted) == 0;
    ::_exit(is_known && wanted.l_type != F_UNLCK ? 0 : 1);
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Goal: no group releases a record lock of the process, such as that of a database which the user's
// program has open. The system releases them as soon as any descriptor of the file is closed.
TEST_P(GroupFailure, TheProcessKeepsItsRecordLocks) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), &std::fclose);
  ASSERT_NE(file, nullptr);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  ASSERT_EQ(::fcntl(::fileno(file.get()), F_SETLK, &lock), 0);
  Cluster cluster(GetParam(), 2);
  const auto groups = cluster.form(ViewId{1}, 2);
  EXPECT_TRUE(is_locked_by_this_process(::fileno(file.get()))) << "a group was formed";
  for (const auto& group : groups) {
    group->abort();
  }
  EXPECT_TRUE(is_locked_by_this_process(::fileno(file.get()))) << "a group was aborted";
}

std::size_t resident_kib() {
  std::ifstream status("/proc/self/status");
  std::string word;
  std::size_t kib = 0;
  while (status >> word) {
    if (word == "VmRSS:") {
      status >> kib;
    }
  }
  return kib;
}

// Goal: hundreds of views leak nothing. Method: count descriptors, threads and memory.
TEST_P(GroupFailure, ReformingLeaksNeitherDescriptorsNorThreadsNorMemory) {
  constexpr std::uint32_t kSize = 3;
  Cluster cluster(GetParam(), kSize);
  std::size_t descriptors = 0;
  std::size_t threads = 0;
  [[maybe_unused]] std::size_t memory_kib = 0;
  const int last = rounds(500);
  for (int round = 0; round <= last; ++round) {
    auto groups = cluster.form(ViewId{static_cast<std::uint64_t>(round + 1)}, kSize);
    on_all(kSize, [&](std::uint32_t rank) {
      std::vector<std::int32_t> data(20000);
      const auto work =
          groups[rank]->all_reduce(data.data(), data.size(), DataType::kInt32, ReduceOp::kSum);
      if (round % 2 == 0) {
        groups[rank]->abort();  // in mid-flight
      } else {
        EXPECT_TRUE(work->wait(far()).ok());
      }
    });
    groups.clear();
    if (round == 20) {  // by now one-time allocations are made
      descriptors = entries_of("/proc/self/fd");
      threads = entries_of("/proc/self/task");
      memory_kib = resident_kib();
    }
  }
  EXPECT_TRUE(settles_at("/proc/self/fd", descriptors));
  EXPECT_TRUE(settles_at("/proc/self/task", threads));
#ifndef __SANITIZE_ADDRESS__                          // ASan keeps freed memory for a while
  EXPECT_LT(resident_kib(), memory_kib + 16 * 1024);  // far less than a buffer or stack per view
#endif
}

INSTANTIATE_TEST_SUITE_P(Transports, GroupFailure, testing::ValuesIn(test::available_kinds()),
                         [](const auto& kind) { return test::name_of(kind.param); });

}  // namespace
}  // namespace mayfly::collectives
