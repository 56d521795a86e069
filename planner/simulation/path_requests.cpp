// The part of PathRunner that requests servers, and exchanges those that were only used for lack of
// others.

#include <algorithm>
#include <tuple>

#include "planner/simulation/instants.hpp"
#include "planner/simulation/path.hpp"

namespace mayfly::planner {
namespace {

constexpr double kPoorRetryS = 60;

}  // namespace

std::uint32_t PathRunner::missing() const {
  const auto have = static_cast<std::uint32_t>(servers_.size()) - (exchange_ ? 1 : 0);
  return target() - std::min(target(), have);
}

/// Servers of each offer, without one that gives way to another.
std::vector<std::uint32_t> PathRunner::present() const {
  std::vector<std::uint32_t> counts = counts_;
  if (exchange_) {
    --counts[exchange_->old_offer];
  }
  return counts;
}

std::uint32_t PathRunner::on_demand_present() const {
  const std::vector<std::uint32_t> counts = present();
  std::uint32_t sum = 0;
  for (std::size_t offer = 0; offer < counts.size(); ++offer) {
    sum += offers_.is_on_demand(offer) ? counts[offer] : 0;
  }
  return sum;
}

/// By offer: what the composition wants beyond what is present.
std::vector<std::uint32_t> PathRunner::lacking() const {
  std::vector<std::uint32_t> counts = wanted_;
  const std::vector<std::uint32_t> here = present();
  for (std::size_t offer = 0; offer < counts.size(); ++offer) {
    counts[offer] -= std::min(counts[offer], here[offer]);
  }
  return counts;
}

/// Losses within a short time are one batch, unless workers were missing already.
void PathRunner::ask_later() {
  if (missing() > 0) {
    ask_at_s_ = waits_for_stock_ ? now_s_ : std::min(ask_at_s_, now_s_ + rules_.gather_s);
  }
}

/// Answers come in the order of the requests; after each refusal what is missing is asked for anew.
void PathRunner::ask() {
  shun_bursts();
  std::vector<Refusal> refusals;
  ask_for_missing(refusals);
  while (!refusals.empty()) {
    refuse(refusals.front().offer);
    refusals.erase(refusals.begin());
    ask_for_missing(refusals);
  }
  std::ranges::fill(losses_, 0);
  waits_for_stock_ = missing() > 0;
  const auto change = catalog_.next_change(instant_of(now_s_));
  ask_at_s_ = waits_for_stock_ && change ? seconds_of(*change) : kNever;
}

/// First what the composition lacks, or what the floor of servers on demand does; then whatever
/// there is. Adds the requests that will be refused.
void PathRunner::ask_for_missing(std::vector<Refusal>& refusals) {
  std::uint32_t awaited = 0;
  for (const Refusal& one : refusals) {
    awaited += one.count;
  }
  const auto still_missing = [&] { return missing() - std::min(missing(), awaited); };
  const auto ask_for = [&](std::uint32_t wanted, const std::vector<std::uint32_t>& most) {
    const std::size_t before = refusals.size();
    request(wanted, most, refusals);
    for (std::size_t i = before; i < refusals.size(); ++i) {
      awaited += refusals[i].count;
    }
  };
  if (still_missing() == 0) {
    return;
  }
  std::vector<std::uint32_t> most(candidate_.offers.size(), 0);
  if (catalog_.has_composition()) {
    most = lacking();
    for (const Refusal& one : refusals) {
      most[one.offer] -= std::min(most[one.offer], one.count);
    }
    ask_for(still_missing(), most);
  } else if (const std::uint32_t floor = std::min(floor_, target()); floor > 0) {
    std::uint32_t on_demand = on_demand_present();
    for (const Refusal& one : refusals) {
      on_demand += offers_.is_on_demand(one.offer) ? one.count : 0;
    }
    for (std::size_t offer = 0; offer < most.size(); ++offer) {
      most[offer] = offers_.is_on_demand(offer) ? still_missing() : 0;
    }
    ask_for(std::min(still_missing(), floor - std::min(floor, on_demand)), most);
  }
  std::ranges::fill(most, target());
  ask_for(still_missing(), most);
}

/// From the best offers, at most so many of each.
void PathRunner::request(std::uint32_t wanted, const std::vector<std::uint32_t>& most,
                         std::vector<Refusal>& refusals) {
  if (wanted == 0) {
    return;
  }
  for (const std::size_t offer : catalog_.ranking(instant_of(now_s_))) {
    const std::uint32_t here = affordable(offer, std::min(wanted, most[offer]), refusals);
    const double lifetime_s = lifetime_of(offer, refusals);
    wanted -= here;
    if (here > 0 && market_.refuses(offer, now_s_)) {
      refusals.push_back({offer, here});
      continue;
    }
    for (std::uint32_t i = 0; i < here; ++i) {
      (void)grant(offer, lifetime_s);
    }
  }
}

void PathRunner::refuse(std::size_t offer) {
  ++outcome_.refusals;
  (void)catalog_.out_of_stock(offer, instant_of(now_s_), {});
}

std::uint64_t PathRunner::grant(std::size_t offer, double lifetime_s) {
  Server server;
  server.offer = offer;
  server.asked_s = now_s_;
  server.order = granted_++;
  server.fate = market_.grant(offer, now_s_);
  if (lifetime_s > 0) {
    server.leaves_s = std::max(now_s_ + lifetime_s - rules_.leave_before_end_s, now_s_);
  }
  if (server.fate.runs_s > now_s_ + rules_.start_timeout_s) {
    server.leaves_s = std::min(server.leaves_s, now_s_ + rules_.start_timeout_s);
  } else if (server.fate.joins_s > server.fate.runs_s + rules_.join_timeout_s) {
    server.leaves_s = std::min(server.leaves_s, server.fate.runs_s + rules_.join_timeout_s);
  }
  const double price = offers_[offer].price_per_hour;
  bill(price, price * job_.billing.least_s / kSecondsPerHour);
  events_.set(servers_.size(), server.next_s());
  servers_.push_back(server);
  ++counts_[offer];
  return server.fate.serial;
}

/// An offer that lost at least as many servers at once as it kept is asked last for a while.
void PathRunner::shun_bursts() {
  for (std::size_t offer = 0; offer < losses_.size(); ++offer) {
    if (losses_[offer] < cloud_hooks::kBurstLeast) {
      continue;
    }
    const auto kept = static_cast<std::uint32_t>(std::ranges::count_if(
        servers_, [&](const Server& server) { return server.offer == offer && server.works; }));
    if (losses_[offer] >= kept) {
      catalog_.shun(offer, instant_of(now_s_ + rules_.shun_after_burst_s));
    }
  }
}

/// Whether its servers are on demand, or more than the composition wants.
bool PathRunner::may_give_way(std::size_t offer,
                              const std::vector<std::uint32_t>& present_now) const {
  return catalog_.has_composition() ? present_now[offer] > wanted_[offer]
                                    : offers_.is_on_demand(offer);
}

/// Whether an offer is on spot and much cheaper for the same speed.
bool PathRunner::is_better(std::size_t offer, std::size_t than) const {
  return !offers_.is_on_demand(offer) &&
         price_per_speed_[offer] <= cloud_hooks::kWorthIt * price_per_speed_[than];
}

/// When a server that was asked for in place of another may be exchanged for one like that.
void PathRunner::plan_exchange() {
  next_exchange_ = {};
  const bool has_composition = catalog_.has_composition();
  if (exchange_ || missing() > 0 || ask_at_s_ < kNever ||
      (!has_composition && on_demand_present() <= std::min(floor_, target()))) {
    return;
  }
  const std::vector<std::uint32_t> lacking_now = lacking();
  const std::vector<std::uint32_t> present_now = present();
  // What all servers of an offer have in common, since there may be thousands of them.
  std::vector<bool> gives_way;
  std::vector<std::optional<Instant>> calm;
  for (std::size_t offer = 0; offer < candidate_.offers.size(); ++offer) {
    gives_way.push_back(may_give_way(offer, present_now));
    calm.push_back(!has_composition || lacking_now[offer] > 0
                       ? catalog_.calm_from(offer, duration_of(rules_.back_to_spot_after_s))
                       : std::nullopt);
  }
  if (std::ranges::find(gives_way, true) == gives_way.end()) {
    return;
  }
  const auto rank = [&](const PossibleExchange& e) {
    return std::tuple(e.due_s, price_per_speed_[e.offer],
                      -price_per_speed_[servers_[e.server].offer],
                      -static_cast<std::int64_t>(servers_[e.server].order));
  };
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    const Server& server = servers_[i];
    for (std::size_t offer = 0;
         server.works && gives_way[server.offer] && offer < candidate_.offers.size(); ++offer) {
      if (!calm[offer] || !(has_composition || is_better(offer, server.offer))) {
        continue;
      }
      // To the nanosecond, as the policy knows it: servers that are due at once are equal.
      const Instant aged = instant_of(server.asked_s) + duration_of(rules_.back_to_spot_after_s);
      const Instant due = std::max({*calm[offer], aged, instant_of(exchange_due_s_)});
      const PossibleExchange one{i, offer, seconds_of(due)};
      next_exchange_ =
          next_exchange_.due_s == kNever || rank(one) < rank(next_exchange_) ? one : next_exchange_;
    }
  }
  next_exchange_.due_s = std::max({next_exchange_.due_s, now_s_, exchange_poor_until_s_});
}

void PathRunner::begin_exchange() {
  const PossibleExchange exchange = next_exchange_;
  const std::uint64_t old = servers_[exchange.server].fate.serial;
  const std::size_t old_offer = servers_[exchange.server].offer;
  const double lifetime_s = lifetime_of(exchange.offer, {});
  if (affordable(exchange.offer, 1, {}) == 0) {
    exchange_poor_until_s_ = now_s_ + kPoorRetryS;
  } else if (market_.refuses(exchange.offer, now_s_)) {
    refuse(exchange.offer);
    end_exchange(true);
  } else {
    exchange_ = Exchange{old, old_offer, grant(exchange.offer, lifetime_s)};
  }
}

void PathRunner::end_exchange(bool failed) {
  exchange_.reset();
  exchange_failures_ =
      failed ? std::min(exchange_failures_ + 1, cloud_hooks::kExchangeDoublingsMax) : 0;
  exchange_due_s_ = now_s_ + rules_.back_to_spot_after_s *
                                 static_cast<double>(std::int64_t{1} << exchange_failures_);
}

}  // namespace mayfly::planner
