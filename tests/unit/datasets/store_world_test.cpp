// Hosts with stores that serve each other by their directories (datasets/core/store_directory.hpp),
// in random schedules of losses, notices, joins, lost messages, slow answers and damaged bytes; and
// faults planted in the hosts, each of which the checks must find.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "datasets/core/store_directory.hpp"

namespace mayfly::datasets {
namespace {

constexpr std::uint64_t kSetItems = 240;
constexpr std::uint32_t kSamples = 4;        // of a microbatch
constexpr std::uint32_t kMicrobatches = 12;  // of a step
constexpr std::uint64_t kStepsOfEpoch = kSetItems / (kSamples * kMicrobatches);
constexpr StoreHost kMostHosts = 6;

enum class Planted {
  kNothing,
  kUncheckedBytes,   // a reader does not compare the hash of what another host sends
  kEvictsOnLoss,     // a host forgets what it keeps when another one is lost
  kHoards,           // a host keeps whatever it has read
  kKeepsSecond,      // a host does not give up what it should
  kMissesALoss,      // a host does not hear that another one was lost
  kMissesAHandOver,  // a host does not count what a leaving one hands over
  kNoOffer,          // a reader does not offer what the directory gives to another host
};

struct Content {
  std::uint64_t item = 0;
  bool is_damaged = false;
};

struct SimulatedHost {
  explicit SimulatedHost(StoreDirectory own) : directory(std::move(own)) {}
  StoreDirectory directory;
  std::uint64_t capacity = 0;
  std::map<std::uint64_t, Content> kept;
};

/// How much goes wrong besides losses, notices and joins.
struct Weather {
  double lost_messages = 0;
  double slow_answers = 0;
  double damaged_bytes = 0;  // per step
};

class StoreWorld {
 public:
  StoreWorld(std::uint64_t seed, const Weather& weather, Planted planted)
      : random_(CounterRandom(seed).split("store world")),
        weather_(weather),
        planted_(planted),
        stream_(seed, kSetItems) {
    for (std::uint64_t i = 0; i < kSetItems; ++i) {
      sizes_.push_back(static_cast<std::uint32_t>(50 + random_.below(350)));
      all_ += sizes_.back();
    }
    const std::uint64_t hosts = 2 + random_.below(3);
    for (std::uint64_t i = 0; i < hosts; ++i) {
      join();
    }
  }

  /// What is wrong, or nothing.
  std::string run(int changes) {
    for (int change = 0; change < changes && failure_.empty(); ++change) {
      epoch(random_.below(kStepsOfEpoch));
      quiet_epochs();
    }
    return failure_;
  }

 private:
  bool chance(double share) { return random_.unit() < share; }
  void expect(bool is_right, const std::string& what) {
    if (!is_right && failure_.empty()) {
      failure_ = what + " at position " + std::to_string(position_);
    }
  }
  [[nodiscard]] std::vector<StoreHost> present() const {
    std::vector<StoreHost> all;
    for (const auto& [host, simulated] : hosts_) {
      all.push_back(host);
    }
    return all;
  }
  StoreHost any_host() { return present()[random_.below(hosts_.size())]; }

  // ---- changes of the view

  void join() {
    StoreHost host = 1;
    while (hosts_.contains(host)) {
      ++host;
    }
    const std::uint64_t capacity = random_.below(all_ * 6 / 10);
    const StoreDirectory empty(sizes_);
    SimulatedHost comer(hosts_.empty() ? empty : hosts_.begin()->second.directory);
    comer.capacity = capacity;
    hosts_.emplace(host, std::move(comer));
    for (auto& [other, simulated] : hosts_) {
      simulated.directory.join(host, capacity);
    }
  }

  void lose(StoreHost host) {
    leaving_ = kNoStoreHost;
    hosts_.erase(host);
    bool is_first = true;
    for (auto& [other, simulated] : hosts_) {
      const auto before = owners_but(simulated.directory, host);
      if (planted_ != Planted::kMissesALoss || !is_first) {
        (void)simulated.directory.leave(host);
        expect(before == owners_but(simulated.directory, host), "a loss changed other entries");
      }
      if (planted_ == Planted::kEvictsOnLoss && is_first) {
        simulated.kept.clear();
      }
      is_first = false;
    }
  }

  static std::vector<std::set<StoreHost>> owners_but(const StoreDirectory& directory,
                                                     StoreHost host) {
    std::vector<std::set<StoreHost>> owners;
    for (std::uint64_t item = 0; item < kSetItems; ++item) {
      const auto both = directory.owners(item);
      owners.emplace_back(both.begin(), both.end());
      owners.back().erase(host);
      owners.back().erase(kNoStoreHost);
    }
    return owners;
  }

  void notice(StoreHost leaver) {
    leaving_ = leaver;
    const std::uint64_t bytes = random_.below(all_ / 2);
    bool is_first = true;
    for (auto& [host, simulated] : hosts_) {
      if (planted_ == Planted::kMissesAHandOver && host != leaver && is_first) {
        is_first = false;
        continue;
      }
      const auto moves = simulated.directory.hand_over(
          leaver, [&](std::uint64_t item) { return next_use_of(stream_, position_, item); }, bytes);
      for (const StoreDirectory::Move& move : moves) {
        if (move.kept.host == host) {
          const auto sent = hosts_.at(leaver).kept.find(move.item);
          const bool arrives = sent != hosts_.at(leaver).kept.end() && !sent->second.is_damaged;
          keep(simulated, move.kept, move.item, arrives && !chance(weather_.lost_messages));
        }
      }
    }
  }

  // ---- reads

  void keep(SimulatedHost& host, const StoreDirectory::Kept& kept, std::uint64_t item,
            bool has_bytes) {
    for (const std::uint64_t given_up : kept.given_up) {
      if (planted_ != Planted::kKeepsSecond) {
        host.kept.erase(given_up);
      }
    }
    if (has_bytes) {
      host.kept[item] = {item, false};
    }
  }

  /// What another host answers in time.
  std::optional<Content> ask(StoreHost host, std::uint64_t item) {
    const auto asked = hosts_.find(host);
    if (asked == hosts_.end() || chance(weather_.slow_answers)) {
      return std::nullopt;
    }
    const auto found = asked->second.kept.find(item);
    return found == asked->second.kept.end() ? std::nullopt : std::optional(found->second);
  }

  /// A host needs an item; afterwards it has the right one.
  void fetch(StoreHost reader, std::uint64_t item) {
    SimulatedHost& own = hosts_.at(reader);
    const auto to_ask = own.directory.to_ask(reader, item);
    for (const StoreHost host : to_ask) {
      if (host == kNoStoreHost) {
        continue;
      }
      const std::optional<Content> answer = ask(host, item);
      if (answer && (!answer->is_damaged || planted_ == Planted::kUncheckedBytes)) {
        expect(!answer->is_damaged, "a damaged image was used");
        return;
      }
    }
    from_storage_ += sizes_[item];
    if (planted_ == Planted::kHoards) {
      own.kept[item] = {item, false};
    }
    for (const StoreHost host : to_ask) {  // it should have it, so it has room
      if (hosts_.contains(host) && hosts_.at(host).directory.is_kept_by(host, item) &&
          !chance(weather_.lost_messages)) {
        hosts_.at(host).kept[item] = {item, false};
      }
    }
  }

  /// One step, in whose middle a host may be lost: others then compute its microbatches.
  void step(std::optional<StoreHost> lost) {
    std::vector<StoreHost> host_of(kMicrobatches);
    const auto everybody = present();
    for (std::uint32_t m = 0; m < kMicrobatches; ++m) {
      host_of[m] = everybody[(m + position_) % everybody.size()];
      fetch_microbatch(host_of[m], m);
    }
    if (lost) {
      lose(*lost);
      for (std::uint32_t m = 0; m < kMicrobatches; ++m) {
        if (host_of[m] == *lost) {
          host_of[m] = any_host();
          fetch_microbatch(host_of[m], m);
        }
      }
    }
    for (auto& [host, simulated] : hosts_) {
      commit(host, simulated, host_of);
    }
    position_ += kMicrobatches * kSamples;
    check();
  }

  void fetch_microbatch(StoreHost host, std::uint32_t microbatch) {
    for (std::uint32_t i = 0; i < kSamples; ++i) {
      fetch(host, stream_.at(position_ + microbatch * kSamples + i).sample);
    }
  }

  /// A host replays the step's reads, and does what concerns itself.
  void commit(StoreHost self, SimulatedHost& host, const std::vector<StoreHost>& host_of) {
    for (std::uint32_t i = 0; i < kMicrobatches * kSamples; ++i) {
      const std::uint64_t item = stream_.at(position_ + i).sample;
      const StoreHost reader = host_of[i / kSamples];
      const auto read = host.directory.read(reader, item);
      if (read.kept.host == self) {
        const bool is_offered = planted_ != Planted::kNoOffer && !chance(weather_.lost_messages);
        keep(host, read.kept, item, reader == self || is_offered);
      }
    }
  }

  // ---- checks

  void check() {
    for (const auto& [host, simulated] : hosts_) {
      expect(simulated.directory == hosts_.begin()->second.directory, "the directories differ");
      std::uint64_t used = 0;
      for (const auto& [item, content] : simulated.kept) {
        used += sizes_[item];
        expect(host == leaving_ || simulated.directory.is_kept_by(host, item),
               "a host keeps what it should not");
      }
      expect(used <= simulated.capacity, "a host keeps more than it has room for");
    }
  }

  [[nodiscard]] bool is_fair() const {
    return weather_.lost_messages + weather_.slow_answers + weather_.damaged_bytes == 0;
  }

  /// With something that happens before step `when`.
  void epoch(std::uint64_t when) {
    for (std::uint64_t i = 0; i < kStepsOfEpoch && failure_.empty(); ++i) {
      std::optional<StoreHost> lost;
      if (i == when) {
        const std::uint64_t kind = random_.below(3);
        if (kind == 0 && hosts_.size() < kMostHosts) {
          join();
        } else if (hosts_.size() > 1) {
          const StoreHost host = any_host();
          if (kind == 1) {
            notice(host);
            step(std::nullopt);
          }
          lost = host;
        }
      }
      damage();
      step(lost);
    }
  }

  void damage() {
    if (chance(weather_.damaged_bytes)) {
      SimulatedHost& host = hosts_.at(any_host());
      if (!host.kept.empty()) {
        auto victim = host.kept.begin();
        std::advance(victim, static_cast<long>(random_.below(host.kept.size())));
        victim->second.is_damaged = true;
      }
    }
  }

  /// Without changes: after two epochs everything that fits is kept, and nothing else is read from
  /// storage, byte by byte.
  void quiet_epochs() {
    for (int number = 0; number < 3 && failure_.empty(); ++number) {
      const std::uint64_t absent = hosts_.begin()->second.directory.absent_bytes();
      from_storage_ = 0;
      const std::uint64_t end = (position_ / kSetItems + 1) * kSetItems;
      const bool is_whole = position_ % kSetItems == 0;
      while (position_ < end && failure_.empty()) {
        damage();
        step(std::nullopt);
      }
      if (is_fair() && is_whole) {
        expect(from_storage_ == absent, "an epoch reads " + std::to_string(from_storage_) +
                                            " bytes, " + std::to_string(absent) + " are absent");
      }
    }
    expect_full();
  }

  /// What nobody keeps fits nowhere.
  void expect_full() {
    const StoreDirectory& directory = hosts_.begin()->second.directory;
    std::map<StoreHost, std::uint64_t> room;
    for (const auto& [host, simulated] : hosts_) {
      room[host] = directory.free_bytes(host);
    }
    for (std::uint64_t item = 0; item < kSetItems; ++item) {
      const auto [first, second] = directory.owners(item);
      if (second != kNoStoreHost) {
        room[first] += sizes_[item];
        room[second] += sizes_[item];
      }
    }
    for (std::uint64_t item = 0; item < kSetItems; ++item) {
      for (const auto& [host, bytes] : room) {
        expect(directory.owners(item)[0] != kNoStoreHost || bytes < sizes_[item],
               "an item that fits is not kept");
      }
    }
  }

  RandomStream random_;
  Weather weather_;
  Planted planted_;
  std::vector<std::uint32_t> sizes_;
  std::uint64_t all_ = 0;
  SampleStream stream_;
  std::uint64_t position_ = 0;
  std::map<StoreHost, SimulatedHost> hosts_;
  StoreHost leaving_ = kNoStoreHost;  // has handed over what the directories give to others
  std::uint64_t from_storage_ = 0;
  std::string failure_;
};

constexpr Weather kFair;
constexpr Weather kFoul{.lost_messages = 0.05, .slow_answers = 0.05, .damaged_bytes = 0.5};
constexpr int kChanges = 8;

TEST(StoreWorld, InFairWeatherStorageIsReadForWhatFitsNowhereOnly) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    ASSERT_EQ(StoreWorld(seed, kFair, Planted::kNothing).run(kChanges), "") << "seed " << seed;
  }
}

TEST(StoreWorld, InFoulWeatherNoWrongImageIsUsedAndNoHostKeepsTooMuch) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    ASSERT_EQ(StoreWorld(seed, kFoul, Planted::kNothing).run(kChanges), "") << "seed " << seed;
  }
}

TEST(StoreWorld, PlantedFaultsAreFound) {
  for (const Planted planted :
       {Planted::kUncheckedBytes, Planted::kEvictsOnLoss, Planted::kHoards, Planted::kKeepsSecond,
        Planted::kMissesALoss, Planted::kMissesAHandOver, Planted::kNoOffer}) {
    const Weather weather = planted == Planted::kUncheckedBytes ? kFoul : kFair;
    std::string failure;
    for (std::uint64_t seed = 0; seed < 50 && failure.empty(); ++seed) {
      failure = StoreWorld(seed, weather, planted).run(kChanges);
    }
    EXPECT_NE(failure, "") << static_cast<int>(planted);
  }
}

}  // namespace
}  // namespace mayfly::datasets
