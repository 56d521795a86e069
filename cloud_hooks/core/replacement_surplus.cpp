// The part of ReplacementPolicy that gives servers up: because there are more than wanted, or
// because they cost more per hour than they may. least_missed.hpp says which ones, as soon as the
// speed of a worker has been measured. A provider may also want a number of servers back.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "cloud_hooks/core/least_missed.hpp"
#include "cloud_hooks/core/replacement_policy.hpp"

namespace mayfly::cloud_hooks {

void ReplacementPolicy::give_up_surplus(Instant now) {
  const std::uint32_t present = staying();
  if (present <= target_ || is_closing_) {
    surplus_since_.reset();
    shrinks_ = shrinks_ && present + coming() > target_;
    return;
  }
  if (!surplus_since_) {
    surplus_since_ = now;
  }
  const bool at_once = shrinks_ || present + coming() > options_.max;
  if (!at_once && now < *surplus_since_ + options_.surplus_patience) {
    return;
  }
  std::uint32_t surplus = present - target_;
  const std::vector<std::string> ids = least_wanted(now, surplus);
  give_up(now, ids, "more than wanted");
  surplus -= static_cast<std::uint32_t>(ids.size());
  for (auto& [id, member] : members_) {  // workers that were started by hand
    const bool stays = !member.leaves && !member.server_is_gone;
    if (surplus > 0 && stays && !member.is_irreplaceable && !servers_.contains(member.server)) {
      member.leaves = true;
      effects_.emplace_back(policy_effect::Drain{id});
      --surplus;
    }
  }
  surplus_since_ = now;  // servers that cannot be given up now are checked again later
}

/// A provider may report other prices than the offers have, and an operator may have lowered the
/// budget of a job that is continued. Servers that leave are paid for a little longer.
void ReplacementPolicy::keep_hourly_budget(Instant now) {
  constexpr double kRounding = 1e-9;
  if (!options_.budget_per_hour || is_closing_ || exchange_) {
    return;
  }
  double excess = bill_.per_hour() - *options_.budget_per_hour * (1 + kRounding);
  for (const auto& [id, server] : servers_) {
    excess -= server.stage == Stage::kLeaving || server.stage == Stage::kReleasing
                  ? bill_.price_per_hour(id)
                  : 0;
  }
  std::vector<std::string> ids;
  double saved = 0;
  for (std::uint32_t count = 1; saved < excess; ++count) {
    std::vector<std::string> more = least_wanted(now, count);
    if (more.size() < count) {
      return;  // even without all that may go it would not be kept
    }
    ids = std::move(more);
    saved = 0;
    for (const std::string& id : ids) {
      saved += bill_.price_per_hour(id);
    }
  }
  give_up(now, ids, "the hourly budget does not allow it any more");
}

/// They are replaced like lost ones, from other offers first, because there is no room for servers
/// like these.
void ReplacementPolicy::give_back(Instant now, std::uint32_t count, const std::string& why) {
  if (count == 0 || is_closing_) {
    return;
  }
  const std::vector<std::string> ids = least_wanted(now, count);
  std::set<std::size_t> offers;
  for (const std::string& id : ids) {
    if (const std::optional<std::size_t> offer = servers_.at(id).offer) {
      offers.insert(*offer);
    }
  }
  for (const std::size_t offer : offers) {
    (void)catalog_.out_of_stock(offer, now, {});
  }
  if (!ids.empty() && !first_loss_) {
    first_loss_ = now;
  }
  give_up(now, ids, why);
}

void ReplacementPolicy::give_up(Instant now, const std::vector<std::string>& ids,
                                const std::string& why) {
  if (ids.empty()) {
    return;
  }
  tell("servers_chosen", reason_of_choice(now, ids) + ": " + why);
  for (const std::string& id : ids) {
    tell("server_given_up", describe(servers_.at(id)) + ": " + why, id);
    let_go(now, id);
  }
}

bool ReplacementPolicy::is_irreplaceable(const Server& server) const {
  return server.member && members_.at(*server.member).is_irreplaceable;
}

bool ReplacementPolicy::may_be_given_up(const std::string& id, const Server& server) const {
  return server.stays() && !is_exchanged(id) && !is_irreplaceable(server) &&
         !is_for_evaluator(server);
}

bool ReplacementPolicy::is_on_demand(const Server& server) const {
  return server.offer && catalog_.terms(*server.offer).offer.market == Market::kOnDemand;
}

/// Its worker's measured speed, or that of other servers of its offer.
double ReplacementPolicy::speed_of(const Server& server) const {
  const auto member = server.member ? members_.find(*server.member) : members_.end();
  const double measured = member == members_.end() ? 0 : member->second.speed;
  return measured > 0 ? measured : catalog_.speed(server.offer);
}

ServerWorth ReplacementPolicy::worth_of(Instant now, const std::string& id,
                                        const Server& server) const {
  ServerWorth worth;
  worth.speed = speed_of(server);
  if (options_.up_share && server.offer) {
    worth.up_share = options_.up_share(catalog_.terms(*server.offer).offer, now - server.born);
  }
  worth.price_per_hour = bill_.price_per_hour(id);
  worth.may_go = may_be_given_up(id, server);
  worth.is_on_demand = is_on_demand(server);
  worth.order = server.order;
  return worth;
}

Composition ReplacementPolicy::composition(Instant now) const {
  Composition all;
  all.is_settled = pending_.empty() && !exchange_ && staying() == target_;
  for (const auto& [id, server] : servers_) {
    all.is_settled = all.is_settled && server.stage == Stage::kWorking;
    if (server.stage == Stage::kWorking && server.offer && !is_for_evaluator(server) &&
        !is_irreplaceable(server)) {
      all.working.push_back({catalog_.terms(*server.offer).offer, bill_.price_per_hour(id),
                             speed_of(server), catalog_.is_measured(*server.offer),
                             now - server.born});
    }
  }
  for (const std::size_t offer : catalog_.ranking(now)) {
    const OfferTerms& terms = catalog_.terms(offer);
    if (!terms.for_evaluator && affordable(now, offer, 1) > 0) {
      all.next = {terms.offer, terms.price_per_hour, catalog_.speed(offer),
                  catalog_.is_measured(offer), Duration(0)};
      break;
    }
  }
  return all;
}

/// Of a composition: servers of offers that have more than it wants go first, the dearest offers
/// first, and of each the ones that are missed least.
std::vector<std::string> ReplacementPolicy::least_wanted(Instant now, std::uint32_t count) const {
  std::vector<std::string> ids;
  const auto add = [&](std::uint32_t most, const IsAmong& is_among) {
    const auto left = static_cast<std::uint32_t>(count - ids.size());
    for (std::string& id : least_wanted_among(now, std::min(most, left), is_among)) {
      ids.push_back(std::move(id));
    }
  };
  if (catalog_.has_composition()) {
    const std::vector<std::uint32_t> wanted = catalog_.wanted_of(target_);
    std::vector<std::size_t> offers(catalog_.size());
    std::iota(offers.begin(), offers.end(), 0);
    std::ranges::stable_sort(offers, std::greater<>{},
                             [this](std::size_t offer) { return catalog_.price_per_speed(offer); });
    add(count, [](const std::string&, const Server& server) { return !server.offer; });
    for (const std::size_t offer : offers) {
      add(present(offer) - std::min(present(offer), wanted[offer]),
          [&](const std::string&, const Server& server) { return server.offer == offer; });
    }
  }
  add(count, [&](const std::string& id, const Server&) {
    return std::ranges::find(ids, id) == ids.end();
  });
  return ids;
}

/// At most so many servers that may be given up: first those without a worker, then the ones that
/// the job misses least. As long as no speed is measured, these are the most expensive for their
/// stated speed, then the newest. On-demand servers only above their floor.
std::vector<std::string> ReplacementPolicy::least_wanted_among(Instant now, std::uint32_t count,
                                                               const IsAmong& is_among) const {
  struct Candidate {
    bool works;
    double price_per_speed;
    std::uint32_t order;
    std::string id;
  };
  std::vector<Candidate> all;
  bool is_measured = false;
  for (const auto& [id, server] : servers_) {
    if (may_be_given_up(id, server) && is_among(id, server)) {
      const double price =
          server.offer ? catalog_.price_per_speed(*server.offer) : price_of(server);
      all.push_back({server.stage == Stage::kWorking, price, server.order, id});
      is_measured = is_measured || (server.member && members_.at(*server.member).speed > 0);
    }
  }
  std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    if (a.works != b.works) {
      return b.works;
    }
    return a.price_per_speed != b.price_per_speed ? a.price_per_speed > b.price_per_speed
                                                  : a.order > b.order;
  });
  const std::uint32_t floor = std::min(options_.on_demand_floor, target_);
  std::uint32_t on_demand = on_demand_present();
  std::vector<std::string> ids;
  for (const Candidate& candidate : all) {
    if (ids.size() == count || (candidate.works && is_measured)) {
      break;
    }
    if (is_on_demand(servers_.at(candidate.id))) {
      if (on_demand <= floor) {
        continue;
      }
      --on_demand;
    }
    ids.push_back(candidate.id);
  }
  if (is_measured && ids.size() < count) {
    const std::size_t on_demand_most = on_demand > floor ? on_demand - floor : 0;
    for (std::string& id :
         least_missed_workers(now, count - ids.size(), on_demand_most, is_among)) {
      ids.push_back(std::move(id));
    }
  }
  return ids;
}

std::vector<std::string> ReplacementPolicy::least_missed_workers(Instant now, std::size_t count,
                                                                 std::size_t on_demand_most,
                                                                 const IsAmong& is_among) const {
  std::vector<ServerWorth> worths;
  std::vector<std::string> ids;
  for (const auto& [id, server] : servers_) {
    const bool computes = server.stage == Stage::kWorking && server.member &&
                          (members_.at(*server.member).speed > 0 || may_be_given_up(id, server));
    if (computes && !is_exchanged(id)) {
      worths.push_back(worth_of(now, id, server));
      worths.back().may_go = worths.back().may_go && is_among(id, server);
      ids.push_back(id);
    }
  }
  std::vector<std::string> chosen;
  for (const std::size_t place :
       least_missed(worths, {count, on_demand_most, options_.microbatches})) {
    chosen.push_back(ids[place]);
  }
  return chosen;
}

/// "s4 (gpu in a (spot)), s2 (...) with 31 % of the speed and 45 % of the price of 4 servers".
std::string ReplacementPolicy::reason_of_choice(Instant now,
                                                const std::vector<std::string>& ids) const {
  ServerWorth all;
  ServerWorth chosen;
  all.speed = chosen.speed = 0;
  std::size_t present = 0;
  for (const auto& [id, server] : servers_) {
    if (!server.stays() || is_for_evaluator(server)) {
      continue;
    }
    ++present;
    const ServerWorth worth = worth_of(now, id, server);
    for (ServerWorth* sum : {&all, &chosen}) {
      if (sum == &all || std::ranges::find(ids, id) != ids.end()) {
        sum->speed += server.stage == Stage::kWorking ? worth.speed * worth.up_share : 0;
        sum->price_per_hour += worth.price_per_hour;
      }
    }
  }
  std::string names;
  for (const std::string& id : ids) {
    names += (names.empty() ? "" : ", ") + id + " (" + describe(servers_.at(id)) + ")";
  }
  const auto percent = [](double part, double whole) {
    return whole > 0 ? fmt::format("{:.0f} %", 100 * part / whole) : std::string("none");
  };
  return fmt::format("{} with {} of the speed and {} of the price of {} servers", names,
                     percent(chosen.speed, all.speed),
                     percent(chosen.price_per_hour, all.price_per_hour), present);
}

}  // namespace mayfly::cloud_hooks
