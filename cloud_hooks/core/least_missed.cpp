#include "cloud_hooks/core/least_missed.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace mayfly::cloud_hooks {
namespace {

using Places = std::vector<std::size_t>;

constexpr double kChoicesMost = 20'000;
constexpr double kEqual = 1e-6;  // relative; sums of equal numbers differ by their order
constexpr int kHalvings = 40;
constexpr int kRoundsMost = 100;

double expected_speed(const ServerWorth& server) {
  return server.speed * server.up_share;
}

bool is_less(double a, double b) {
  return a < b - kEqual * std::abs(b);
}

class Chooser {
 public:
  Chooser(const std::vector<ServerWorth>& servers, const GiveUp& wanted)
      : servers_(servers), wanted_(wanted) {
    for (std::size_t place = 0; place < servers.size(); ++place) {
      if (servers[place].may_go) {
        candidates_.push_back(place);
      }
    }
    std::ranges::sort(candidates_, std::greater<>(),
                      [&](std::size_t place) { return servers[place].order; });
    const auto on_demand = static_cast<std::size_t>(std::ranges::count_if(
        candidates_, [&](std::size_t place) { return servers[place].is_on_demand; }));
    count_ = std::min(wanted.count,
                      candidates_.size() - on_demand + std::min(on_demand, wanted.on_demand_most));
  }

  [[nodiscard]] Places choose() const { return is_small() ? try_all() : by_price_of_speed(); }

 private:
  struct Rest {  // the servers that stay
    double cost = 0;
    double speed = 0;
    double divisible_speed = 0;
  };

  [[nodiscard]] bool is_small() const {
    double choices = 1;
    for (std::size_t i = 0; i < count_ && choices <= kChoicesMost; ++i) {
      choices *= static_cast<double>(candidates_.size() - i) / static_cast<double>(i + 1);
    }
    return choices <= kChoicesMost;
  }

  [[nodiscard]] Rest rest_without(const Places& given_up) const {
    std::vector<ServerWorth> kept;
    Rest rest;
    double price = 0;
    for (std::size_t place = 0; place < servers_.size(); ++place) {
      if (std::ranges::find(given_up, place) == given_up.end()) {
        kept.push_back(servers_[place]);
        price += servers_[place].price_per_hour;
        rest.divisible_speed += expected_speed(servers_[place]);
      }
    }
    rest.speed = speed_together(kept, wanted_.microbatches);
    rest.cost = kept.empty() ? 0 : price / rest.speed;
    return rest;
  }

  [[nodiscard]] static bool is_better(const Rest& a, const Rest& b) {
    if (is_less(a.cost, b.cost) || is_less(b.cost, a.cost)) {
      return a.cost < b.cost;
    }
    if (is_less(a.speed, b.speed) || is_less(b.speed, a.speed)) {
      return a.speed > b.speed;
    }
    return is_less(b.divisible_speed, a.divisible_speed);
  }

  /// Tries all choices, those with newer servers first, so that the first of equal ones is kept.
  [[nodiscard]] Places try_all() const {
    Places best;
    Rest best_rest;
    std::vector<char> taken(candidates_.size(), 0);
    std::fill_n(taken.begin(), count_, 1);
    do {
      Places one;
      std::size_t on_demand = 0;
      for (std::size_t i = 0; i < taken.size(); ++i) {
        if (taken[i] != 0) {
          one.push_back(candidates_[i]);
          on_demand += servers_[candidates_[i]].is_on_demand ? 1 : 0;
        }
      }
      if (on_demand > wanted_.on_demand_most) {
        continue;
      }
      const Rest rest = rest_without(one);
      if (best.empty() || is_better(rest, best_rest)) {
        best = one;
        best_rest = rest;
      }
    } while (std::prev_permutation(taken.begin(), taken.end()));
    return best;
  }

  /// Minimises price / speed of the servers that stay, by the method of Dinkelbach, Management
  /// Science 13 (1967), page 492: with the ratio of one choice as the price of speed, the servers
  /// that cost most beyond the price of their speed go, until the ratio does not change any more.
  [[nodiscard]] Places by_price_of_speed() const {
    double price = 0;
    double speed = 0;
    for (const ServerWorth& server : servers_) {
      price += server.price_per_hour;
      speed += expected_speed(server);
    }
    double ratio = price / speed;
    Places given_up;
    for (int round = 0; round < kRoundsMost; ++round) {
      given_up = dearest(ratio);
      double kept_price = price;
      double kept_speed = speed;
      for (const std::size_t place : given_up) {
        kept_price -= servers_[place].price_per_hour;
        kept_speed -= expected_speed(servers_[place]);
      }
      const double next = kept_speed > 0 ? kept_price / kept_speed : 0;
      if (!is_less(next, ratio)) {
        break;
      }
      ratio = next;
    }
    return given_up;
  }

  /// The servers that cost most beyond the price of their speed, `ratio`; if that is 0, the
  /// slowest.
  [[nodiscard]] Places dearest(double ratio) const {
    Places order = candidates_;
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
      const auto excess = [&](std::size_t place) {
        return servers_[place].price_per_hour - ratio * expected_speed(servers_[place]);
      };
      return ratio > 0 ? excess(a) > excess(b)
                       : expected_speed(servers_[a]) < expected_speed(servers_[b]);
    });
    Places given_up;
    std::size_t on_demand = 0;
    for (const std::size_t place : order) {
      const bool is_on_demand = servers_[place].is_on_demand;
      if (given_up.size() == count_ || (is_on_demand && on_demand == wanted_.on_demand_most)) {
        continue;
      }
      on_demand += is_on_demand ? 1 : 0;
      given_up.push_back(place);
    }
    std::ranges::sort(given_up, std::greater<>(),
                      [&](std::size_t place) { return servers_[place].order; });
    return given_up;
  }

  const std::vector<ServerWorth>& servers_;
  const GiveUp& wanted_;
  Places candidates_;  // newest first
  std::size_t count_ = 0;
};

}  // namespace

double speed_together(const std::vector<ServerWorth>& servers, std::uint32_t microbatches) {
  double all = 0;
  double up = 0;
  for (const ServerWorth& server : servers) {
    all += server.speed;
    up += expected_speed(server);
  }
  if (microbatches == 0 || servers.empty()) {
    return up;
  }
  const double whole = microbatches;
  double too_short = 0;
  double long_enough = (whole + static_cast<double>(servers.size())) / all;
  for (int i = 0; i < kHalvings; ++i) {
    const double time = (too_short + long_enough) / 2;
    const double done = std::accumulate(
        servers.begin(), servers.end(), 0.0,
        [time](double sum, const ServerWorth& one) { return sum + std::floor(one.speed * time); });
    (done < whole ? too_short : long_enough) = time;
  }
  return whole / long_enough * up / all;
}

std::vector<std::size_t> least_missed(const std::vector<ServerWorth>& servers,
                                      const GiveUp& wanted) {
  return Chooser(servers, wanted).choose();
}

}  // namespace mayfly::cloud_hooks
