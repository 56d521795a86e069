#include "planner/simulation/path_requests.hpp"

#include <algorithm>
#include <limits>

#include "planner/simulation/instants.hpp"

namespace mayfly::planner {

PathRequests::PathRequests(const PolicyRules& rules, const CandidateOffers& offers,
                           const cloud_hooks::OfferCatalog& fresh, const Demand& demand,
                           const PathBudget& budget, PathMarket& market, PathServers& servers)
    : rules_(rules),
      offers_(offers),
      fresh_catalog_(fresh),
      demand_(demand),
      budget_(budget),
      market_(market),
      servers_(servers),
      catalog_(fresh) {
  begin();
}

void PathRequests::begin() {
  catalog_ = fresh_catalog_;
  due_s_ = 0;
  waits_for_stock_ = false;
  refusals_ = 0;
  losses_.assign(catalog_.size(), 0);
  open_.clear();
}

/// cloud_hooks::Provisioner::request_missing(): losses within a short time are one batch, unless
/// servers were missing already.
void PathRequests::ask_soon(double now_s) {
  if (demand_.missing() > 0) {
    due_s_ = waits_for_stock_ ? now_s : std::min(due_s_, now_s + rules_.gather_s);
  }
}

/// Like ask_soon(), for an event that begins no batch of losses but waits for one that has begun.
void PathRequests::ask_at_once(double now_s) {
  if (demand_.missing() > 0 && (waits_for_stock_ || due_s_ == kNever)) {
    due_s_ = now_s;
  }
}

void PathRequests::lost(std::size_t offer, double now_s) {
  ++losses_[offer];
  ask_soon(now_s);
}

/// cloud_hooks::ServerLifecycle::gone().
void PathRequests::taken_early(std::size_t offer, double now_s) {
  (void)catalog_.out_of_stock(offer, instant_of(now_s), {});
  ask_soon(now_s);
}

/// This and the next one: cloud_hooks::ServerLifecycle::stage_is_over().
void PathRequests::not_started(std::size_t offer, double now_s) {
  (void)catalog_.out_of_stock(offer, instant_of(now_s), {});
  ask_at_once(now_s);
}

void PathRequests::not_joined(std::size_t offer, double now_s) {
  (void)catalog_.failed_to_start(offer, instant_of(now_s));
  ask_at_once(now_s);
}

bool PathRequests::is_settled() const {
  return demand_.missing() == 0 && due_s_ == kNever;
}

/// Answers are processed in the order of the requests; after each refusal, the servers that are
/// missing then are requested again.
void PathRequests::ask(double now_s) {
  shun_bursts(now_s);
  ask_for_missing(now_s);
  while (!open_.empty()) {
    refused(open_.front().offer, now_s);
    open_.erase(open_.begin());
    ask_for_missing(now_s);
  }
  std::ranges::fill(losses_, 0);
  waits_for_stock_ = demand_.missing() > 0;
  const auto change = catalog_.next_change(instant_of(now_s));
  due_s_ = waits_for_stock_ && change ? seconds_of(*change) : kNever;
}

std::optional<std::uint64_t> PathRequests::ask_for_one(std::size_t offer, double now_s) {
  if (market_.refuses(offer, now_s)) {
    refused(offer, now_s);
    return std::nullopt;
  }
  return grant(offer, budget_.lifetime_s(offer, {}, now_s), now_s);
}

/// Servers of the offers with `is_among` that open requests may bring.
template <typename IsAmong>
std::uint32_t PathRequests::coming(IsAmong is_among) const {
  std::uint32_t count = 0;
  for (const OpenRequest& one : open_) {
    count += is_among(one.offer) ? one.count : 0;
  }
  return count;
}

std::uint32_t PathRequests::missing() const {
  return demand_.missing(coming([](std::size_t) { return true; }));
}

/// cloud_hooks::Provisioner::request_workers(): first servers that the composition, or the floor of
/// on-demand servers, lacks, then servers of any offer.
void PathRequests::ask_for_missing(double now_s) {
  constexpr std::uint32_t kAny = std::numeric_limits<std::uint32_t>::max();
  const auto is_on_demand = [&](std::size_t offer) { return offers_.is_on_demand(offer); };
  if (demand_.has_composition()) {
    const auto lacking = [&](std::size_t offer) {
      return demand_.lacking(offer, coming([&](std::size_t other) { return other == offer; }));
    };
    request(missing(), lacking, now_s);
  } else {
    const std::uint32_t lacking = demand_.lacking_on_demand(coming(is_on_demand));
    request(
        std::min(missing(), lacking),
        [&](std::size_t offer) { return is_on_demand(offer) ? kAny : 0; }, now_s);
  }
  request(
      missing(), [](std::size_t) { return kAny; }, now_s);
}

/// cloud_hooks::Provisioner::request_up_to(): from the best offers, at most `most_of` of each.
template <typename MostOf>
void PathRequests::request(std::uint32_t wanted, MostOf most_of, double now_s) {
  if (wanted == 0) {
    return;
  }
  for (const std::size_t offer : catalog_.ranking(instant_of(now_s))) {
    const std::uint32_t here =
        budget_.affordable(offer, std::min(wanted, most_of(offer)), open_, now_s);
    wanted -= here;
    if (here > 0 && market_.refuses(offer, now_s)) {
      open_.push_back({offer, here});
    } else if (here > 0) {
      const double lifetime_s = budget_.lifetime_s(offer, open_, now_s);
      for (std::uint32_t i = 0; i < here; ++i) {
        (void)grant(offer, lifetime_s, now_s);
      }
    }
  }
}

/// When the policy gives the server up follows from its fate: at the end of its lifetime, or when
/// it does not run or join in time (cloud_hooks::ServerLifecycle::watch()).
std::uint64_t PathRequests::grant(std::size_t offer, double lifetime_s, double now_s) {
  const ServerFate fate = market_.grant(offer, now_s);
  Leaving leaving;
  if (lifetime_s > 0) {
    leaving.at_s = std::max(now_s + lifetime_s - rules_.leave_before_end_s, now_s);
  }
  Leaving late;
  if (fate.runs_s > now_s + rules_.start_timeout_s) {
    late = {now_s + rules_.start_timeout_s, ServerEvent::kNotStarted};
  } else if (fate.joins_s > fate.runs_s + rules_.join_timeout_s) {
    late = {fate.runs_s + rules_.join_timeout_s, ServerEvent::kNotJoined};
  }
  servers_.add(offer, fate, late.at_s <= leaving.at_s ? late : leaving, now_s);
  return fate.serial;
}

void PathRequests::refused(std::size_t offer, double now_s) {
  ++refusals_;
  (void)catalog_.out_of_stock(offer, instant_of(now_s), {});
}

/// cloud_hooks::Provisioner::shun_bursts(): an offer that lost at least as many servers at once as
/// it kept is asked last for a while.
void PathRequests::shun_bursts(double now_s) {
  for (std::size_t offer = 0; offer < losses_.size(); ++offer) {
    if (losses_[offer] >= cloud_hooks::kBurstLeast && losses_[offer] >= servers_.working(offer)) {
      catalog_.shun(offer, instant_of(now_s + rules_.shun_after_burst_s));
    }
  }
}

}  // namespace mayfly::planner
