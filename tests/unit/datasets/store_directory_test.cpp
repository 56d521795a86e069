#include "datasets/core/store_directory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/random.hpp"

namespace mayfly::datasets {
namespace {

constexpr StoreHost kA = 1;
constexpr StoreHost kB = 2;
constexpr StoreHost kC = 3;

using Owners = std::array<StoreHost, 2>;

StoreDirectory directory_of(std::size_t items, std::uint32_t size = 10) {
  return StoreDirectory(std::vector<std::uint32_t>(items, size));
}

TEST(StoreDirectory, WhoeverReadsFirstAdoptsAndOthersAskThatHost) {
  StoreDirectory directory = directory_of(8);
  directory.join(kA, 40);
  directory.join(kB, 40);
  const auto first = directory.read(kB, 5);
  EXPECT_EQ(first.from, kNoStoreHost);
  EXPECT_EQ(first.kept.host, kB);
  EXPECT_EQ(directory.read(kB, 5).from, kB);
  const auto other = directory.read(kA, 5);
  EXPECT_EQ(other.from, kB);
  EXPECT_EQ(other.kept.host, kNoStoreHost) << "the room is needed for items that nobody keeps";
  EXPECT_EQ(directory.absent_bytes(), 70U);
  EXPECT_EQ(directory.free_bytes(kB), 30U);
}

TEST(StoreDirectory, WhoHasNoRoomOffersTheItemToTheHostWithMost) {
  StoreDirectory directory = directory_of(8);
  directory.join(kA, 10);
  directory.join(kB, 20);
  directory.join(kC, 30);
  (void)directory.read(kA, 0);
  const auto offered = directory.read(kA, 1);
  EXPECT_EQ(offered.from, kNoStoreHost);
  EXPECT_EQ(offered.kept.host, kC);
  for (std::uint64_t item = 2; item < 8; ++item) {
    (void)directory.read(kA, item);
  }
  EXPECT_EQ(directory.absent_bytes(), 20U) << "all hosts are full";
  EXPECT_EQ(directory.read(kA, 7).kept.host, kNoStoreHost);
  EXPECT_EQ(directory.read(kA, 7).from, kNoStoreHost);
}

TEST(StoreDirectory, SpareRoomHoldsSecondCopiesWhichMakeALossFree) {
  StoreDirectory directory = directory_of(4);
  directory.join(kA, 40);
  directory.join(kB, 40);
  for (std::uint64_t item = 0; item < 4; ++item) {
    (void)directory.read(kA, item);
  }
  EXPECT_EQ(directory.owners(0), (Owners{kA, kNoStoreHost}));
  for (std::uint64_t item = 0; item < 4; ++item) {
    const auto read = directory.read(kB, item);
    EXPECT_EQ(read.from, kA);
    EXPECT_EQ(read.kept.host, kB);
    EXPECT_EQ(directory.owners(item), (Owners{kA, kB}));
  }
  EXPECT_EQ(directory.leave(kA), 0U);
  EXPECT_EQ(directory.absent_bytes(), 0U);
  EXPECT_EQ(directory.owners(3), (Owners{kB, kNoStoreHost}));
}

TEST(StoreDirectory, SecondCopiesAreGivenUpForWhatNobodyKeeps) {
  StoreDirectory directory = directory_of(4);
  directory.join(kA, 20);
  directory.join(kB, 20);
  directory.join(kC, 20);
  (void)directory.read(kA, 0);
  (void)directory.read(kA, 1);
  (void)directory.read(kB, 2);
  (void)directory.read(kB, 3);
  (void)directory.read(kC, 0);
  (void)directory.read(kC, 1);
  EXPECT_EQ(directory.leave(kB), 20U);
  const auto read = directory.read(kC, 2);
  EXPECT_EQ(read.from, kNoStoreHost);
  EXPECT_EQ(read.kept.host, kC);
  EXPECT_EQ(read.kept.given_up, (std::vector<std::uint64_t>{0}));
  EXPECT_EQ(directory.owners(0), (Owners{kA, kNoStoreHost}));
  (void)directory.read(kC, 3);
  EXPECT_EQ(directory.absent_bytes(), 0U) << "all four fit";
}

TEST(StoreDirectory, ReadersOfAnItemWithTwoOwnersTakeTurns) {
  StoreDirectory directory = directory_of(4);
  for (const StoreHost host : {kA, kB, kC}) {
    directory.join(host, 40);
  }
  EXPECT_EQ(directory.to_ask(kA, 0), (Owners{kNoStoreHost, kNoStoreHost}));
  for (std::uint64_t item = 0; item < 2; ++item) {
    (void)directory.read(kA, item);
    (void)directory.read(kB, item);
  }
  EXPECT_EQ(directory.to_ask(kA, 0), (Owners{kA, kB}));
  EXPECT_EQ(directory.to_ask(kB, 0), (Owners{kB, kA}));
  EXPECT_EQ(directory.to_ask(kC, 0), (Owners{kB, kA}));
  EXPECT_EQ(directory.to_ask(kC, 1), (Owners{kA, kB}));
}

TEST(StoreDirectory, HandsOverWhatIsNeededFirstAsFarAsThereIsRoomAndTime) {
  StoreDirectory directory = directory_of(6);
  directory.join(kA, 60);
  for (std::uint64_t item = 0; item < 6; ++item) {
    (void)directory.read(kA, item);
  }
  directory.join(kB, 20);
  directory.join(kC, 10);
  const auto next_use = [](std::uint64_t item) { return 100 - item; };
  StoreDirectory hurried = directory;
  EXPECT_EQ(hurried.hand_over(kA, next_use, 15).size(), 1U) << "there is time for 15 bytes";
  const auto moves = directory.hand_over(kA, next_use, 1000);
  ASSERT_EQ(moves.size(), 3U);
  EXPECT_EQ(moves[0].item, 5U);
  EXPECT_EQ(moves[0].kept.host, kB);
  EXPECT_EQ(moves[1].item, 4U);
  EXPECT_EQ(moves[2].item, 3U);
  EXPECT_EQ(directory.leave(kA), 30U) << "of 0, 1 and 2, for which there was no room";
}

TEST(StoreDirectory, DoesNotHandOverWhatAnotherHostKeepsToo) {
  StoreDirectory directory = directory_of(2);
  directory.join(kA, 20);
  directory.join(kB, 20);
  (void)directory.read(kA, 0);
  (void)directory.read(kA, 1);
  (void)directory.read(kB, 0);
  const auto moves = directory.hand_over(
      kA, [](std::uint64_t item) { return item; }, 1000);
  ASSERT_EQ(moves.size(), 1U);
  EXPECT_EQ(moves[0].item, 1U);
  EXPECT_EQ(directory.leave(kA), 0U);
}

TEST(StoreDirectory, NextUseIsThePositionAtWhichTheStreamHasTheSample) {
  const SampleStream stream(7, 50);
  for (std::uint64_t position = 0; position < 150; ++position) {
    EXPECT_EQ(next_use_of(stream, position, stream.at(position).sample), position);
    const std::uint64_t sample = position % 50;
    const std::uint64_t next = next_use_of(stream, position, sample);
    EXPECT_GE(next, position);
    EXPECT_EQ(stream.at(next).sample, sample);
    for (std::uint64_t between = position; between < next; ++between) {
      EXPECT_NE(stream.at(between).sample, sample);
    }
  }
}

// ---- shares of a data set that four hosts read from storage, as a table of capacities

constexpr std::uint64_t kItems = 10'000;
constexpr std::uint32_t kMicrobatch = 8;

/// Log-normal, as the files of photographs are.
std::vector<std::uint32_t> file_sizes() {
  RandomStream random(CounterRandom(3).split("sizes"));
  std::vector<std::uint32_t> sizes(kItems);
  for (std::uint32_t& size : sizes) {
    const double normal =
        std::sqrt(-2 * std::log(1 - random.unit())) * std::cos(6.283185307179586 * random.unit());
    size = static_cast<std::uint32_t>(100'000 * std::exp(0.5 * normal));
  }
  return sizes;
}

/// Hosts that read the same stream, a microbatch each in turn.
class SharedSet {
 public:
  SharedSet(double capacity, int hosts) : sizes_(file_sizes()), directory_(sizes_) {
    all_ = std::accumulate(sizes_.begin(), sizes_.end(), std::uint64_t{0});
    for (StoreHost host = 1; host <= hosts; ++host) {
      come(host, capacity);
    }
  }

  void come(StoreHost host, double capacity) {
    directory_.join(host, static_cast<std::uint64_t>(capacity * static_cast<double>(all_)));
    hosts_.push_back(host);
  }
  double lose(StoreHost host) {
    std::erase(hosts_, host);
    return share(directory_.leave(host));
  }
  /// The share of the set that an epoch reads from storage; of reads of these items only, if given.
  double epoch(const std::vector<bool>& only = {}) {
    std::uint64_t bytes = 0;
    for (std::uint64_t i = 0; i < kItems; ++i, ++position_) {
      const std::uint64_t item = stream_.at(position_).sample;
      const StoreHost host = hosts_[(position_ / kMicrobatch) % hosts_.size()];
      const auto read = directory_.read(host, item);
      bytes += read.from == kNoStoreHost && (only.empty() || only[item]) ? sizes_[item] : 0;
    }
    return share(bytes);
  }
  void notice(StoreHost host) {
    (void)directory_.hand_over(
        host, [&](std::uint64_t item) { return next_use_of(stream_, position_, item); },
        UINT64_MAX);
  }
  [[nodiscard]] double absent() const { return share(directory_.absent_bytes()); }
  [[nodiscard]] const StoreDirectory& directory() const { return directory_; }

 private:
  [[nodiscard]] double share(std::uint64_t bytes) const {
    return static_cast<double>(bytes) / static_cast<double>(all_);
  }

  std::vector<std::uint32_t> sizes_;
  std::uint64_t all_ = 0;
  StoreDirectory directory_;
  SampleStream stream_{5, kItems};
  std::uint64_t position_ = 0;
  std::vector<StoreHost> hosts_;
};

TEST(StoreDirectoryShares, WithFourHostsWhatFitsIsReadFromStorageOnce) {
  for (const double capacity : {0.10, 0.20, 0.25, 0.30, 0.50}) {
    SharedSet set(capacity, 4);
    EXPECT_NEAR(set.epoch(), 1, 0.005) << capacity;
    const double rest = std::max(0.0, 1 - 4 * capacity);
    for (int epoch = 0; epoch < 3; ++epoch) {
      EXPECT_NEAR(set.epoch(), rest, 0.005) << capacity;
    }
  }
}

// After the loss of one of four hosts: what had its only copy there is read once more if it fits,
// and then every epoch reads what does not fit. A rule without memory (consistent hashing) evicts
// what was good; a fixed list of owners reads the lost quarter in every epoch.
TEST(StoreDirectoryShares, ALossCostsWhatTheDeadHostAloneHeldOnceAndOnlyIfItFits) {
  struct Row {
    double capacity, lost_max, afterwards;
  };
  for (const Row& row : {Row{0.20, 0.20, 0.40}, Row{0.25, 0.25, 0.25}, Row{0.30, 0.25, 0.10},
                         Row{0.35, 0.25, 0.0}, Row{0.50, 0.0, 0.0}}) {
    SharedSet set(row.capacity, 4);
    for (int epoch = 0; epoch < 4; ++epoch) {
      (void)set.epoch();
    }
    std::vector<bool> was_kept(kItems);
    for (std::uint64_t item = 0; item < kItems; ++item) {
      was_kept[item] = set.directory().owners(item)[0] != kNoStoreHost;
    }
    const double lost = set.lose(2);
    EXPECT_LE(lost, row.lost_max + 0.01) << row.capacity;
    const double extra = set.epoch(was_kept);
    EXPECT_LE(extra, lost + 1e-9) << row.capacity << ": each once";
    EXPECT_NEAR(set.absent(), row.afterwards, 0.005) << row.capacity;
    for (int epoch = 0; epoch < 2; ++epoch) {
      EXPECT_NEAR(set.epoch(), row.afterwards, 0.005) << row.capacity;
    }
  }
}

TEST(StoreDirectoryShares, AfterANoticeALossCostsNothingIfThereIsRoom) {
  for (const double capacity : {0.34, 0.40}) {
    SharedSet set(capacity, 4);
    (void)set.epoch();
    (void)set.epoch();
    set.notice(3);
    EXPECT_EQ(set.lose(3), 0) << capacity;
    EXPECT_EQ(set.epoch(), 0) << capacity;
  }
}

TEST(StoreDirectoryShares, AJoinCostsNothingAndIsUsedWithinAnEpoch) {
  SharedSet set(0.20, 4);
  (void)set.epoch();
  (void)set.epoch();
  set.come(5, 0.20);
  EXPECT_NEAR(set.epoch(), 0.20, 0.005) << "what was absent is read as it would be anyway";
  EXPECT_NEAR(set.epoch(), 0, 0.005);
}

}  // namespace
}  // namespace mayfly::datasets
