#include "planner/simulation/path_exchange.hpp"

#include <algorithm>
#include <tuple>

#include "base/time.hpp"
#include "planner/simulation/instants.hpp"

namespace mayfly::planner {

PathExchange::PathExchange(const PolicyRules& rules, const CandidateOffers& offers,
                           const cloud_hooks::OfferCatalog& catalog, const Demand& demand,
                           PathServers& servers)
    : rules_(rules), offers_(offers), demand_(demand), servers_(servers) {
  std::size_t on_demand = 0;
  for (std::size_t offer = 0; offer < offers_.size(); ++offer) {
    price_per_speed_.push_back(catalog.price_per_speed(offer));
    on_demand += offers_.is_on_demand(offer) ? 1 : 0;
  }
  const bool has_both = on_demand > 0 && on_demand < offers_.size();
  is_possible_ = (has_both || catalog.has_composition()) && rules_.back_to_spot_after_s > 0;
}

void PathExchange::begin() {
  next_ = {};
  current_.reset();
  failures_ = 0;
  not_before_s_ = no_budget_until_s_ = 0;
}

/// cloud_hooks::Exchange::find() and next_wake().
void PathExchange::plan(const cloud_hooks::OfferCatalog& catalog, bool is_settled, double now_s) {
  next_ = {};
  if (is_possible_ && !current_ && is_settled) {
    find(catalog);
    next_.due_s = std::max({next_.due_s, now_s, no_budget_until_s_});
  }
}

void PathExchange::find(const cloud_hooks::OfferCatalog& catalog) {
  // Computes the facts that all servers of an offer share once, because there may be thousands of
  // servers.
  const Duration calm_for = duration_of(rules_.back_to_spot_after_s);
  gives_way_.clear();
  calm_from_.clear();
  for (std::size_t offer = 0; offer < offers_.size(); ++offer) {
    gives_way_.push_back(demand_.may_give_way(offer));
    calm_from_.push_back(!demand_.has_composition() || demand_.lacking(offer) > 0
                             ? catalog.calm_from(offer, calm_for)
                             : std::nullopt);
  }
  if (std::ranges::find(gives_way_, true) == gives_way_.end()) {
    return;
  }
  for (std::size_t place = 0; place < servers_.size(); ++place) {
    const PathServer& server = servers_[place];
    for (std::size_t offer = 0; server.works && gives_way_[server.offer] && offer < offers_.size();
         ++offer) {
      if (!calm_from_[offer] || !(demand_.has_composition() || is_better(offer, server.offer))) {
        continue;
      }
      // In whole nanoseconds, as in the policy, so that servers that are due at the same time
      // compare equal.
      const Instant aged = instant_of(server.asked_s) + calm_for;
      const Instant due = std::max({*calm_from_[offer], aged, instant_of(not_before_s_)});
      const Possible one{place, offer, seconds_of(due)};
      next_ = next_.due_s == kNever || comes_before(one, next_) ? one : next_;
    }
  }
}

/// cloud_hooks::Exchange::is_better(): whether an offer is on spot and much cheaper for the same
/// speed.
bool PathExchange::is_better(std::size_t offer, std::size_t than) const {
  return !offers_.is_on_demand(offer) &&
         price_per_speed_[offer] <= cloud_hooks::kWorthIt * price_per_speed_[than];
}

/// Among exchanges that are due at the same time, the one with the cheapest successor comes first,
/// then the one that replaces the dearest, then the youngest server.
bool PathExchange::comes_before(const Possible& a, const Possible& b) const {
  const auto rank = [&](const Possible& one) {
    const PathServer& server = servers_[one.server];
    return std::tuple(one.due_s, price_per_speed_[one.offer], -price_per_speed_[server.offer],
                      -static_cast<std::int64_t>(server.order));
  };
  return rank(a) < rank(b);
}

void PathExchange::granted(std::uint64_t successor) {
  current_ = Current{servers_[next_.server].fate.serial, successor};
  servers_.set_gives_way(next_.server, true);
}

void PathExchange::postpone(double now_s) {
  no_budget_until_s_ = now_s + to_seconds(cloud_hooks::kPoorRetry);
}

std::optional<std::size_t> PathExchange::joined(std::uint64_t serial, double now_s) {
  if (!current_ || current_->new_serial != serial) {
    return std::nullopt;
  }
  const std::size_t leaves = servers_.place_of(current_->old_serial);
  end(false, now_s);
  return leaves;
}

void PathExchange::removed(std::uint64_t serial, double now_s) {
  if (current_ && current_->old_serial == serial) {
    current_.reset();
  } else if (current_ && current_->new_serial == serial) {
    servers_.set_gives_way(servers_.place_of(current_->old_serial), false);
    end(true, now_s);
  }
}

/// cloud_hooks::Exchange::watch().
void PathExchange::end(bool failed, double now_s) {
  current_.reset();
  failures_ = failed ? std::min(failures_ + 1, cloud_hooks::kExchangeDoublingsMax) : 0;
  not_before_s_ =
      now_s + rules_.back_to_spot_after_s * static_cast<double>(std::int64_t{1} << failures_);
}

}  // namespace mayfly::planner
