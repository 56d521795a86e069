// Goal: whatever NCCL does and whenever a member is lost, every operation ends, no buffer is
// written after its operation was reported, no communicator is left, and the next view computes
// right sums.
// Method: fake devices behave at random; one member is lost at a random moment, silently or not,
// and the other members' groups are aborted soon after, as the coordinator would do.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "tests/unit/collectives/nccl/fake_members.hpp"

namespace mayfly::collectives {
namespace {

using test::FakeMembers;
using test::far;
using test::on_all;

using Ints = std::vector<std::int32_t>;

class RandomFaults : public testing::Test {
 protected:
  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(random_()) % limit; }

  void behave_at_random(FakeMembers& members) {
    for (test::FakeNccl* const fake : members.fakes) {
      fake->script.init_polls = static_cast<int>(below(60));
      fake->script.enqueue_polls = static_cast<int>(below(4));
      fake->script.finalize_polls = static_cast<int>(below(60));
      fake->script.sees_deaths = below(2) == 0;
    }
  }

  // Runs several operations at a time until one fails, then overwrites all buffers.
  static std::vector<Ints> reduce_until_failure(Group& group, std::size_t count) {
    std::vector<Ints> data(3, Ints(count, 1));
    bool fine = true;
    while (fine) {
      std::vector<std::unique_ptr<Work>> works;
      for (Ints& ints : data) {
        works.push_back(
            group.all_reduce(ints.data(), ints.size(), DataType::kInt32, ReduceOp::kSum));
      }
      for (const auto& work : works) {
        const Result<void> done = work->wait(far());
        fine = fine && done.ok();
        EXPECT_TRUE(done.ok() || done.error().code == Errc::kAborted ||
                    done.error().code == Errc::kPeerLost)
            << done.error().detail;
      }
    }
    for (Ints& ints : data) {
      std::fill(ints.begin(), ints.end(), -7);
    }
    return data;
  }

  // Runs one view in which `victim` is lost. The other members overwrite their buffers afterwards,
  // which must then not change.
  void lose(std::vector<std::unique_ptr<DeviceGroup>>& groups, std::uint32_t victim) {
    const auto size = static_cast<std::uint32_t>(groups.size());
    const std::size_t count = below(2) == 0 ? 5 : 20'000;
    const auto delay = std::chrono::microseconds(below(3000));
    std::vector<std::vector<Ints>> data(size);
    std::atomic<bool> lost{false};
    std::thread coordinator([&] {
      while (!lost) {
        std::this_thread::yield();
      }
      std::this_thread::sleep_for(delay);  // only to vary the moment
      for (std::uint32_t rank = 0; rank < size; ++rank) {
        if (rank != victim) {
          groups[rank]->abort();
        }
      }
    });
    on_all(size, [&](std::uint32_t rank) {
      if (rank == victim) {
        std::this_thread::sleep_for(delay);
        groups[rank].reset();
        lost = true;
      } else {
        data[rank] = reduce_until_failure(*groups[rank], count);
      }
    });
    coordinator.join();
    for (const std::vector<Ints>& buffers : data) {
      for (const Ints& ints : buffers) {
        EXPECT_EQ(ints, Ints(count, -7));
      }
    }
  }

  const unsigned seed_ = std::random_device{}();
  std::mt19937 random_{seed_};
};

TEST_F(RandomFaults, NeverHangNorTouchWhatWasReportedAndTheNextViewIsRight) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  FakeMembers members(5);
  for (std::uint64_t view = 1; view <= 60; view += 2) {
    behave_at_random(members);
    const std::uint32_t size = 2 + below(4);
    auto groups = members.form(view, size);
    lose(groups, below(size));
    groups.clear();
    EXPECT_EQ(test::fake_counts().live_comms, 0);
    groups = members.form(view + 1, size);
    on_all(size, [&](std::uint32_t rank) {
      Ints ones(100, 1);
      const auto work =
          groups[rank]->all_reduce(ones.data(), ones.size(), DataType::kInt32, ReduceOp::kSum);
      EXPECT_TRUE(work->wait(far()).ok());
      EXPECT_EQ(ones, Ints(100, static_cast<std::int32_t>(size)));
    });
  }
}

// As if a member died at a random moment while the other members form the group.
TEST_F(RandomFaults, WhileFormingEndOnceTheViewIsGivenUp) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  FakeMembers members(4);
  for (std::uint64_t view = 1; view <= 60; view += 2) {
    behave_at_random(members);
    const std::uint32_t size = 2 + below(3);
    const std::uint32_t victim = below(size);
    const auto delay = std::chrono::microseconds(below(2000));
    on_all(size, [&](std::uint32_t rank) {
      if (rank == victim) {
        std::this_thread::sleep_for(delay);
        for (std::uint32_t other = 0; other < size; ++other) {
          members.transports[other]->give_up_on(ViewId{view});
        }
        return;
      }
      const auto formed = members.transports[rank]->form(members.spec(view, rank, size), far());
      ASSERT_FALSE(formed.ok());
      EXPECT_TRUE(formed.error().code == Errc::kAborted || formed.error().code == Errc::kPeerLost);
    });
    auto groups = members.form(view + 1, size);
    on_all(size,
           [&](std::uint32_t rank) { EXPECT_TRUE(groups[rank]->barrier()->wait(far()).ok()); });
    groups.clear();
    EXPECT_EQ(test::fake_counts().live_comms, 0);
  }
}

}  // namespace
}  // namespace mayfly::collectives
