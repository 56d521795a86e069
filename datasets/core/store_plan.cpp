#include "datasets/core/store_plan.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace mayfly::datasets {
namespace {

constexpr std::size_t kNobody = SIZE_MAX;

/// The first of so many hosts for which `is_wanted` holds. The search begins at another host for
/// each item.
template <typename IsWanted>
std::size_t in_turn(std::size_t hosts, std::uint64_t item, const IsWanted& is_wanted) {
  for (std::size_t k = 0; k < hosts; ++k) {
    const std::size_t host = (item + k) % hosts;
    if (is_wanted(host)) {
      return host;
    }
  }
  return kNobody;
}

std::size_t keeper_of(std::span<const StoreIndex* const> hosts, std::uint64_t item) {
  return in_turn(hosts.size(), item, [&](std::size_t host) { return hosts[host]->keeps(item); });
}

/// Makes the plan of one host, item by item.
class Planner {
 public:
  explicit Planner(const StoreSituation& situation)
      : now_(situation), self_(*situation.hosts[situation.self]) {}

  void consider(std::uint64_t item) {
    const std::size_t keeper = keeper_of(now_.hosts, item);
    if (keeper == kNobody) {
      take_over(item);
    } else if (self_.keeps_second(item)) {
      keep_for_good(item);
    } else {
      double_up(item, keeper);
    }
  }

  StorePlan finish(std::uint64_t bytes_max) {
    if (lacks_items_) {  // the room is needed for those items
      fill(taken_over_, std::min(self_.free + self_.spare, bytes_max));
    } else {
      fill(doubled_, std::min(self_.free, bytes_max));
    }
    return std::move(plan_);
  }

 private:
  using Pulls = std::vector<std::pair<std::uint64_t, StorePull>>;  // with the next use

  /// To be called if no host that stays keeps the item.
  void take_over(std::uint64_t item) {
    lacks_items_ = true;
    const std::size_t from = keeper_of(now_.leavers, item);
    if (from == kNobody) {
      return;
    }
    const std::size_t taker = in_turn(now_.hosts.size(), item, [&](std::size_t host) {
      const StoreIndex& index = *now_.hosts[host];
      return index.free + index.spare >= now_.sizes[item] && now_.reaches(host, from);
    });
    if (taker == now_.self) {
      taken_over_.push_back({now_.next_use(item), {item, from, false}});
    }
    plan_.needs_leavers = plan_.needs_leavers || taker != kNobody;
  }

  /// A second copy of this host becomes the first copy if no other host has a first copy; if
  /// several hosts have second copies, that of the first host in order does.
  void keep_for_good(std::uint64_t item) {
    for (std::size_t host = 0; host < now_.hosts.size(); ++host) {
      const bool is_other = host != now_.self && now_.hosts[host]->keeps(item);
      if (is_other && (!now_.hosts[host]->keeps_second(item) || host < now_.self)) {
        return;
      }
    }
    plan_.first.push_back(item);
  }

  /// Plans a second copy, if `keeper` is the only host that keeps the item.
  void double_up(std::uint64_t item, std::size_t keeper) {
    const bool has_two = in_turn(now_.hosts.size(), item, [&](std::size_t host) {
                           return host != keeper && now_.hosts[host]->keeps(item);
                         }) != kNobody;
    if (has_two || keeper == now_.self) {
      return;
    }
    const std::size_t taker = in_turn(now_.hosts.size(), item, [&](std::size_t host) {
      return host != keeper && now_.hosts[host]->free >= second_copy_bytes(now_.sizes[item]);
    });
    if (taker == now_.self) {
      doubled_.push_back({now_.next_use(item), {item, keeper, true}});
    }
  }

  void fill(Pulls& pulls, std::uint64_t room) {
    std::ranges::sort(pulls, {}, [](const auto& pull) { return pull.first; });
    for (const auto& [when, pull] : pulls) {
      const std::uint64_t size = now_.sizes[pull.item];
      const std::uint64_t taken = pull.is_second ? second_copy_bytes(size) : size;
      if (taken <= room) {  // a smaller one may still fit
        room -= taken;
        plan_.pulls.push_back(pull);
      }
    }
  }

  const StoreSituation& now_;
  const StoreIndex& self_;
  StorePlan plan_;
  Pulls taken_over_;
  Pulls doubled_;
  bool lacks_items_ = false;
};

}  // namespace

StorePlan plan_copies(const StoreSituation& situation, std::uint64_t bytes_max) {
  ENSURE(situation.self < situation.hosts.size(), "the host that plans is one of those that stay");
  Planner planner(situation);
  for (std::uint64_t item = 0; item < situation.sizes.size(); ++item) {
    planner.consider(item);
  }
  return planner.finish(bytes_max);
}

}  // namespace mayfly::datasets
