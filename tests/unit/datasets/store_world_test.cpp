// Simulated hosts whose stores copy from each other by plans (datasets/core/store_plan.hpp), in
// random schedules of losses, notices, joins, lost messages, slow answers and damaged bytes. The
// checks must also find each fault that is planted in the hosts.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "datasets/core/sample_stream.hpp"
#include "datasets/core/store_plan.hpp"

namespace mayfly::datasets {
namespace {

constexpr std::uint64_t kSetItems = 120;
constexpr std::uint32_t kSamples = 4;        // of a microbatch
constexpr std::uint32_t kMicrobatches = 10;  // of a step
constexpr std::uint64_t kStepsOfEpoch = kSetItems / (kSamples * kMicrobatches);
constexpr std::size_t kMostHosts = 5;
constexpr std::uint64_t kPlanBytesMax = 200'000;  // bytes of one plan

enum class Planted {
  kNothing,
  kUncheckedBytes,     // a reader does not check the bytes that another host sends
  kGivesUpFirst,       // a host gives up first copies, too
  kNeverKeepsForGood,  // a second copy stays one when the first copy is lost
  kGivesUpAtOnce,      // a host gives up copies before it has the other hosts' indices
  kNeverGivesUp,       // a host never gives up a second copy
  kTooMuch,            // a host does not count the room of second copies
  kNoSecondCopies,     // a host makes no second copies
  kLeaverIsGone,       // a host that leaves stops serving at once
  kNoOffers,           // a host does not offer images for which it has no room to others
};

/// The probabilities of faults, besides losses of hosts.
struct Weather {
  double lost_messages = 0;
  double slow_answers = 0;
  double damaged_bytes = 0;  // per step
};

struct Copy {
  bool is_second = false;
  bool is_damaged = false;
};

using HostId = std::uint64_t;

struct SimulatedHost {
  std::uint64_t capacity = 0;
  std::map<std::uint64_t, Copy> kept;
  bool may_give_up = false;
  std::map<HostId, StoreIndex> known;  // the last indices of other hosts
};

class StoreWorld {
 public:
  StoreWorld(std::uint64_t seed, const Weather& weather, Planted planted)
      : random_(CounterRandom(seed).split("store world")),
        weather_(weather),
        planted_(planted),
        stream_(seed, kSetItems) {
    for (std::uint64_t i = 0; i < kSetItems; ++i) {
      sizes_.push_back(static_cast<std::uint32_t>(3000 + random_.below(20'000)));
      all_ += second_copy_bytes(sizes_.back());
    }
    const std::uint64_t hosts = 2 + random_.below(3);
    for (std::uint64_t i = 0; i < hosts; ++i) {
      join();
    }
  }

  /// Returns the first violation, or an empty text.
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
  [[nodiscard]] bool is_fair() const {
    return weather_.lost_messages + weather_.slow_answers + weather_.damaged_bytes == 0;
  }
  HostId any_host() {
    return std::next(hosts_.begin(), static_cast<long>(random_.below(hosts_.size())))->first;
  }

  // ---- a store

  [[nodiscard]] std::uint64_t room_of(std::uint64_t item, bool is_second) const {
    return is_second ? second_copy_bytes(sizes_[item]) : sizes_[item];
  }
  [[nodiscard]] StoreIndex index_of(const SimulatedHost& host) const {
    StoreIndex index;
    index.kept.resize(StoreIndex::words(kSetItems));
    index.second.resize(StoreIndex::words(kSetItems));
    index.free = host.capacity;
    for (const auto& [item, copy] : host.kept) {
      index.kept[item / 64] |= std::uint64_t{1} << (item % 64);
      index.second[item / 64] |= std::uint64_t{copy.is_second ? 1U : 0U} << (item % 64);
      const bool counts = planted_ != Planted::kTooMuch || !copy.is_second;
      index.free -= std::min(index.free, counts ? room_of(item, copy.is_second) : 0);
      index.spare += copy.is_second ? room_of(item, true) : 0;
    }
    return index;
  }
  [[nodiscard]] long keepers(std::uint64_t item) const {
    return std::ranges::count_if(
        hosts_, [&](const auto& entry) { return entry.second.kept.contains(item); });
  }
  [[nodiscard]] bool is_kept(std::uint64_t item) const { return keepers(item) > 0; }

  bool keep(SimulatedHost& host, std::uint64_t item, bool as_second) {
    while (index_of(host).free < room_of(item, as_second)) {
      const auto victim = std::ranges::find_if(host.kept, [&](const auto& entry) {
        return entry.second.is_second || planted_ == Planted::kGivesUpFirst;
      });
      const bool may = host.may_give_up || planted_ == Planted::kGivesUpAtOnce;
      if (as_second || !may || victim == host.kept.end() || planted_ == Planted::kNeverGivesUp) {
        return false;
      }
      host.kept.erase(victim);
    }
    return host.kept.emplace(item, Copy{.is_second = as_second}).second;
  }

  // ---- changes of the view

  void join() {
    // Room for a tenth of the set up to one and a half times the set.
    hosts_[next_host_++].capacity = all_ / 10 + random_.below(all_ * 14 / 10);
    begin_view();
  }

  void begin_view() {
    for (auto& [host, simulated] : hosts_) {
      simulated.may_give_up = false;
      std::erase_if(simulated.known,
                    [&](const auto& entry) { return !hosts_.contains(entry.first); });
      ask_all(host);
    }
  }

  void lose(HostId host) {
    const SimulatedHost lost = std::move(hosts_.at(host));
    hosts_.erase(host);
    for (const auto& [item, copy] : lost.kept) {
      if (!is_kept(item)) {
        present_.erase(item);
      }
    }
    begin_view();
  }

  /// A host leaves the view and serves until no host needs it; another one may join meanwhile.
  void leave(HostId host) {
    SimulatedHost leaver = std::move(hosts_.at(host));
    hosts_.erase(host);
    leaver_ = planted_ == Planted::kLeaverIsGone ? std::nullopt : std::optional(leaver);
    first_newcomer_ = next_host_;
    begin_view();
    if (hosts_.size() < kMostHosts && chance(0.3)) {
      join();
    }
    bool is_needed = true;
    for (int rounds = 0; rounds < 100 && is_needed; ++rounds) {
      is_needed = false;
      for (auto& [other, simulated] : hosts_) {
        is_needed = plan_round(other) || is_needed;
      }
    }
    leaver_.reset();
    for (const auto& [item, copy] : leaver.kept) {
      const std::uint64_t size = sizes_[item];
      const bool fits = std::ranges::any_of(hosts_, [&](const auto& entry) {
        const StoreIndex index = index_of(entry.second);
        return entry.first < first_newcomer_ && index.free + index.spare >= size;
      });
      expect(!is_fair() || is_kept(item) || !fits, "what a leaver kept is not taken over");
      if (!is_kept(item)) {
        present_.erase(item);
      }
    }
  }

  // ---- copying

  void ask_all(HostId self) {
    for (const auto& [other, simulated] : hosts_) {
      if (other != self && !chance(weather_.slow_answers)) {
        hosts_.at(self).known[other] = index_of(simulated);
      }
    }
  }

  /// One host plans and copies. Returns whether it still needs the leaver.
  bool plan_round(HostId self) {
    if (chance(weather_.slow_answers)) {
      return leaver_.has_value();  // another host has not sent its index
    }
    SimulatedHost& own = hosts_.at(self);
    std::vector<StoreIndex> indexes;
    std::vector<SimulatedHost*> order;
    std::size_t place = 0;
    for (auto& [other, simulated] : hosts_) {
      place += other < self ? 1 : 0;
      indexes.push_back(index_of(simulated));
      order.push_back(&simulated);
      own.known[other] = indexes.back();
    }
    own.known.erase(self);
    if (leaver_ && self < first_newcomer_) {
      indexes.push_back(index_of(*leaver_));
    }
    std::vector<const StoreIndex*> pointers;
    for (const StoreIndex& index : indexes) {
      pointers.push_back(&index);
    }
    const StorePlan plan = plan_copies(
        {.sizes = sizes_,
         .hosts = std::span(pointers).first(order.size()),
         .self = place,
         .leavers = std::span(pointers).subspan(order.size()),
         .reaches =
             [&](std::size_t host, std::size_t) {
               return std::next(hosts_.begin(), static_cast<long>(host))->first < first_newcomer_;
             },
         .next_use = [&](std::uint64_t item) { return stream_.next_use(position_, item); }},
        kPlanBytesMax);
    for (const std::uint64_t item : plan.first) {
      own.kept.at(item).is_second = planted_ == Planted::kNeverKeepsForGood;
    }
    own.may_give_up = true;
    for (const StorePull& pull : plan.pulls) {
      const SimulatedHost& from = pull.is_second ? *order[pull.from] : *leaver_;
      const auto sent = from.kept.find(pull.item);
      const bool is_right = sent != from.kept.end() && !sent->second.is_damaged;
      if (is_right && !chance(weather_.lost_messages) &&
          (!pull.is_second || planted_ != Planted::kNoSecondCopies) &&
          keep(own, pull.item, pull.is_second)) {
        present_.insert(pull.item);
      }
    }
    return plan.needs_leavers;
  }

  // ---- reads

  /// A host gets an item that it needs: from its store, from another host, or from storage.
  void fetch(HostId reader, std::uint64_t item) {
    SimulatedHost& own = hosts_.at(reader);
    if (const auto found = own.kept.find(item); found != own.kept.end()) {
      if (!found->second.is_damaged) {
        return;
      }
      own.kept.erase(found);
      present_.erase(item);  // perhaps no other host keeps it
    }
    bool is_known = false;
    for (const auto& [other, index] : own.known) {
      if (index.keeps(item)) {
        is_known = true;
        if (arrives(hosts_.at(other), item)) {
          return;
        }
      }
    }
    if (leaver_ && arrives(*leaver_, item)) {
      return;
    }
    expect(!is_fair() || !is_kept(item), "an image that a host keeps was read from storage");
    from_storage_ += sizes_[item];
    const StoreIndex before = index_of(own);
    const bool has_room = before.free + (own.may_give_up ? before.spare : 0) >= sizes_[item];
    if (keep(own, item, is_known)) {
      present_.insert(item);
    } else {
      expect(is_known || !has_room, "a host does not keep what it has room for");
      if (!is_known && planted_ != Planted::kNoOffers) {
        offer(own, item);
      }
    }
  }

  /// Offers an item to a host that has room for it according to its last index.
  void offer(const SimulatedHost& reader, std::uint64_t item) {
    for (const auto& [other, index] : reader.known) {
      if (index.free + index.spare >= sizes_[item]) {
        if (!chance(weather_.lost_messages) && keep(hosts_.at(other), item, false)) {
          present_.insert(item);
        }
        return;
      }
    }
  }

  bool arrives(const SimulatedHost& host, std::uint64_t item) {
    const auto found = host.kept.find(item);
    if (found == host.kept.end() || chance(weather_.slow_answers)) {
      return false;
    }
    const bool is_used = !found->second.is_damaged || planted_ == Planted::kUncheckedBytes;
    expect(!is_used || !found->second.is_damaged, "a damaged image was used");
    return is_used;
  }

  /// One step. A host may be lost in its middle; other hosts then compute its microbatches.
  void step(std::optional<HostId> lost) {
    std::vector<HostId> host_of(kMicrobatches);
    for (std::uint32_t m = 0; m < kMicrobatches; ++m) {
      host_of[m] = any_host();
      fetch_microbatch(host_of[m], m);
    }
    if (lost) {
      lose(*lost);
      for (std::uint32_t m = 0; m < kMicrobatches; ++m) {
        if (host_of[m] == *lost) {
          fetch_microbatch(any_host(), m);
        }
      }
    }
    position_ += kMicrobatches * kSamples;
    for (const auto& [host, simulated] : hosts_) {
      if (chance(0.7)) {
        (void)plan_round(host);
      }
    }
    check();
  }

  void fetch_microbatch(HostId host, std::uint32_t microbatch) {
    for (std::uint32_t i = 0; i < kSamples; ++i) {
      fetch(host, stream_.at(position_ + microbatch * kSamples + i).sample);
    }
  }

  // ---- checks

  void check() {
    for (const auto& [host, simulated] : hosts_) {
      std::uint64_t used = 0;
      for (const auto& [item, copy] : simulated.kept) {
        used += room_of(item, copy.is_second);
      }
      expect(used <= simulated.capacity, "a host keeps more than it has room for");
    }
    for (const std::uint64_t item : present_) {
      expect(is_kept(item) || !is_fair(), "an item was given up that no other host keeps");
    }
  }

  void begin_epoch() {
    for (const auto& [host, simulated] : hosts_) {
      ask_all(host);
    }
  }

  /// One epoch. At most one change happens, before or in its step `when`.
  void epoch(std::uint64_t when) {
    begin_epoch();
    for (std::uint64_t i = 0; i < kStepsOfEpoch && failure_.empty(); ++i) {
      std::optional<HostId> lost;
      if (i == when) {
        const std::uint64_t kind = random_.below(3);
        if (kind == 0 && hosts_.size() < kMostHosts) {
          join();
        } else if (hosts_.size() > 1 && kind == 1) {
          leave(any_host());
        } else if (hosts_.size() > 1) {
          lost = any_host();
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

  /// Epochs without changes: each reads exactly the items that no host keeps from storage.
  void quiet_epochs() {
    for (int number = 0; number < 4 && failure_.empty(); ++number) {
      std::uint64_t absent = 0;
      for (std::uint64_t item = 0; item < kSetItems; ++item) {
        absent += is_kept(item) ? 0 : sizes_[item];
      }
      from_storage_ = 0;
      begin_epoch();
      for (std::uint64_t i = 0; i < kStepsOfEpoch && failure_.empty(); ++i) {
        damage();
        step(std::nullopt);
      }
      expect(!is_fair() || from_storage_ == absent, "an epoch reads " +
                                                        std::to_string(from_storage_) + " bytes, " +
                                                        std::to_string(absent) + " are absent");
    }
    expect_no_room_left();
    expect_doubled();
  }

  /// No host has room for an item that no host keeps.
  void expect_no_room_left() {
    for (std::uint64_t item = 0; item < kSetItems && is_fair(); ++item) {
      for (const auto& [host, simulated] : hosts_) {
        const StoreIndex index = index_of(simulated);
        expect(is_kept(item) || index.free + index.spare < sizes_[item],
               "a host has room for an item that nobody keeps");
      }
    }
  }

  /// If no item is missing, each one has a second copy, unless no host has room for it.
  void expect_doubled() {
    if (!is_fair() || present_.size() < kSetItems) {
      return;
    }
    for (int rounds = 0; rounds < 20; ++rounds) {
      for (const auto& [host, simulated] : hosts_) {
        (void)plan_round(host);
      }
    }
    for (std::uint64_t item = 0; item < kSetItems; ++item) {
      for (const auto& [host, simulated] : hosts_) {
        const bool is_single = !simulated.kept.contains(item) && keepers(item) == 1;
        expect(!is_single || index_of(simulated).free < room_of(item, true),
               "there is room for a second copy");
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
  HostId next_host_ = 1;
  HostId first_newcomer_ = 0;  // the first host that joined after the leaver had left
  std::map<HostId, SimulatedHost> hosts_;
  std::optional<SimulatedHost> leaver_;
  std::set<std::uint64_t> present_;  // items that hosts must keep: no loss or damage removed them
  std::uint64_t from_storage_ = 0;
  std::string failure_;
};

constexpr Weather kFair;
constexpr Weather kFoul{.lost_messages = 0.05, .slow_answers = 0.05, .damaged_bytes = 0.5};
constexpr int kChanges = 8;

TEST(StoreWorld, InFairWeatherStorageIsReadForWhatNobodyKeepsOnly) {
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
  using enum Planted;
  for (const Planted planted :
       {kUncheckedBytes, kGivesUpFirst, kNeverKeepsForGood, kGivesUpAtOnce, kNeverGivesUp, kTooMuch,
        kNoSecondCopies, kLeaverIsGone, kNoOffers}) {
    std::string failure;
    for (std::uint64_t seed = 0; seed < 50 && failure.empty(); ++seed) {
      failure = StoreWorld(seed, planted == kUncheckedBytes ? kFoul : kFair, planted).run(kChanges);
    }
    EXPECT_NE(failure, "") << static_cast<int>(planted);
  }
}

}  // namespace
}  // namespace mayfly::datasets
