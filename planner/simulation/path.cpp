#include "planner/simulation/path.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/check.hpp"
#include "cloud_hooks/core/replacement_policy.hpp"

namespace mayfly::planner {
namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
constexpr std::uint32_t kBurstLeast = 2;  // as in cloud_hooks/core/replacement_requests
constexpr double kWorthIt = 0.8;
constexpr int kDoublingsMax = 4;

Instant instant_of(double at_s) {
  return Instant{static_cast<std::int64_t>(std::llround(at_s * 1e9))};
}

Duration duration_of(double length_s) {
  return Duration(static_cast<std::int64_t>(std::llround(length_s * 1e9)));
}

double seconds_of(Instant at) {
  return static_cast<double>(at.ns) / 1e9;
}

}  // namespace

PolicyRules default_rules() {
  const cloud_hooks::ReplacementOptions options;
  return {to_seconds(options.gather),           to_seconds(options.start_timeout),
          to_seconds(options.join_timeout),     to_seconds(options.leave_timeout),
          to_seconds(options.shun_after_burst), to_seconds(options.back_to_spot_after)};
}

double PathRunner::Server::next_s() const {
  const double end = std::min(fate.dies_s, leaves_s);
  return works ? end : std::min(fate.joins_s, end);
}

PathRunner::PathRunner(const Market& market, const JobModel& job, const Candidate& candidate,
                       double horizon_s)
    : market_(market),
      job_(job),
      candidate_(candidate),
      horizon_s_(horizon_s),
      rules_(default_rules()),
      fresh_catalog_(terms_of(market, job, candidate), {}),
      set_(market, job, candidate),
      catalog_(fresh_catalog_),
      progress_(job, candidate.checkpoint_every_s, set_.full_speed()) {
  ENSURE(candidate.workers > 0 && job.work > 0, "there is work and someone to do it");
  bool has_spot = false;
  bool has_on_demand = false;
  for (std::size_t offer = 0; offer < candidate_.offers.size(); ++offer) {
    (is_on_demand(offer) ? has_on_demand : has_spot) = true;
    const std::size_t zone = model(offer).zone;
    if (!is_on_demand(offer) && !market_.zones.at(zone).shocks.is_calm() &&
        std::ranges::find(zones_, zone) == zones_.end()) {
      zones_.push_back(zone);
    }
  }
  has_exchanges_ = has_spot && has_on_demand && rules_.back_to_spot_after_s > 0;
}

const OfferModel& PathRunner::model(std::size_t offer) const {
  return market_.offers[candidate_.offers[offer]];
}

bool PathRunner::is_on_demand(std::size_t offer) const {
  return model(offer).offer.market == cloud_hooks::Market::kOnDemand;
}

void PathRunner::begin(std::uint64_t seed, std::uint64_t path) {
  draws_ = PathDraws(seed, path);
  catalog_ = fresh_catalog_;
  speed_factor_ = draws_.factor("speed", 0, job_.speed_log_sd);
  progress_ = Progress(job_, candidate_.checkpoint_every_s, set_.full_speed() * speed_factor_);
  outcome_ = {};
  set_.clear();
  now_s_ = 0;
  servers_.clear();
  shocks_.clear();
  for (const std::size_t zone : zones_) {
    shocks_.push_back(draws_.shocks(market_.zones[zone], zone));
  }
  const std::size_t offers = candidate_.offers.size();
  grants_.assign(offers, 0);
  requests_.assign(offers, 0);
  out_until_s_.assign(offers, 0);
  losses_.assign(offers, 0);
  ask_at_s_ = 0;
  waits_for_stock_ = has_been_full_ = lost_all_ = false;
  floor_ = candidate_.on_demand_floor;
  fall_back_at_s_ = kNever;
  exchange_.reset();
  next_exchange_ = {};
  exchange_failures_ = 0;
  exchange_due_s_ = 0;
}

PathOutcome PathRunner::run(std::uint64_t seed, std::uint64_t path) {
  begin(seed, path);
  ask();
  update();
  while (true) {
    const std::size_t server = next_server();
    const std::size_t zone = next_zone();
    const double change = std::min({server == kNone ? kNever : servers_[server].next_s(),
                                    zone == kNone ? kNever : shocks_[zone].next().at_s, ask_at_s_,
                                    next_exchange_.due_s, fall_back_at_s_, horizon_s_});
    const double finish = progress_.finish_s();
    now_s_ = std::min(finish, change);
    progress_.advance(now_s_);
    if (finish <= change || change >= horizon_s_) {
      outcome_.finish_s = finish <= change ? now_s_ : kNever;
      break;
    }
    happen(server, zone, change);
    update();
  }
  for (const Server& server : servers_) {
    outcome_.cost += cost_of(server);
  }
  outcome_.cost += job_.other_cost_per_hour * now_s_ / kSecondsPerHour;
  progress_.report(outcome_);
  return outcome_;
}

std::size_t PathRunner::next_server() const {
  std::size_t next = kNone;
  double at = kNever;
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    if (servers_[i].next_s() < at) {
      at = servers_[i].next_s();
      next = i;
    }
  }
  return next;
}

std::size_t PathRunner::next_zone() const {
  std::size_t next = kNone;
  double at = kNever;
  for (std::size_t i = 0; i < shocks_.size(); ++i) {
    if (shocks_[i].next().at_s < at) {
      at = shocks_[i].next().at_s;
      next = i;
    }
  }
  return next;
}

/// The one of the next events whose time it is.
void PathRunner::happen(std::size_t server, std::size_t zone, double at_s) {
  if (server != kNone && servers_[server].next_s() <= at_s) {
    server_event(server);
  } else if (zone != kNone && shocks_[zone].next().at_s <= at_s) {
    strike(zone);
  } else if (ask_at_s_ <= at_s) {
    ask();
  } else if (fall_back_at_s_ <= at_s) {
    floor_ = target();
  } else {
    begin_exchange();
  }
}

void PathRunner::server_event(std::size_t index) {
  Server& server = servers_[index];
  if (!server.works && server.fate.joins_s <= std::min(server.fate.dies_s, server.leaves_s)) {
    joined(server);
  } else if (server.fate.dies_s <= server.leaves_s) {
    lose(index);
    ask_later();
  } else {
    if (!server.works) {  // given up: it did not start in time
      (void)catalog_.out_of_stock(server.offer, instant_of(now_s_), {});
    }
    remove(index);
    ask_later();
  }
}

void PathRunner::joined(Server& server) {
  server.works = true;
  catalog_.worked(server.offer);
  const bool is_first = set_.size() == 0;
  set_.join(server.offer);
  if (is_first && lost_all_) {
    progress_.stop_until(now_s_ + job_.restore_s);
  } else if (!is_first) {
    progress_.stop_until(now_s_ + job_.join_stop_s);
  }
  lost_all_ = false;
  if (exchange_ && exchange_->new_serial == server.fate.serial) {
    const std::uint64_t old = exchange_->old_serial;
    end_exchange(false);
    remove(static_cast<std::size_t>(
        std::ranges::find_if(servers_, [&](const Server& s) { return s.fate.serial == old; }) -
        servers_.begin()));
  }
}

void PathRunner::strike(std::size_t zone) {
  const Shock shock = shocks_[zone].next();
  shocks_[zone].pop();
  for (std::size_t i = servers_.size(); i-- > 0;) {
    const Server& server = servers_[i];
    if (model(server.offer).zone == zones_[zone] && !is_on_demand(server.offer) &&
        server.fate.runs_s <= now_s_ && draws_.is_taken(shock, zones_[zone], server.fate.serial)) {
      lose(i);
      ask_later();
    }
  }
}

/// The provider takes the server.
void PathRunner::lose(std::size_t index) {
  const Server& server = servers_[index];
  if (!server.works) {
    (void)catalog_.out_of_stock(server.offer, instant_of(now_s_), {});
    remove(index);
    return;
  }
  ++outcome_.losses;
  ++losses_[server.offer];
  progress_.stop_until(now_s_ + job_.recovery_s);
  remove(index);
  if (set_.size() == 0) {
    ++outcome_.all_lost;
    lost_all_ = true;
    progress_.lose_state();
  }
}

void PathRunner::remove(std::size_t index) {
  const Server& server = servers_[index];
  outcome_.cost += cost_of(server);
  if (server.works) {
    set_.leave(server.offer);
  }
  const std::uint64_t serial = server.fate.serial;
  servers_[index] = servers_.back();
  servers_.pop_back();
  if (exchange_ && exchange_->old_serial == serial) {
    exchange_.reset();  // its successor takes its place
  } else if (exchange_ && exchange_->new_serial == serial) {
    end_exchange(true);
  }
}

double PathRunner::cost_of(const Server& server) const {
  const double from = job_.billing.from_running ? server.fate.runs_s : server.asked_s;
  if (now_s_ < from) {
    return 0;
  }
  return model(server.offer).price_per_hour * std::max(now_s_ - from, job_.billing.least_s) /
         kSecondsPerHour;
}

// --- Requests ---

std::uint32_t PathRunner::missing() const {
  const auto have = static_cast<std::uint32_t>(servers_.size()) - (exchange_ ? 1 : 0);
  return target() - std::min(target(), have);
}

std::uint32_t PathRunner::on_demand_present() const {
  std::uint32_t count = 0;
  for (const Server& server : servers_) {
    const bool leaves = exchange_ && exchange_->old_serial == server.fate.serial;
    count += is_on_demand(server.offer) && !leaves ? 1 : 0;
  }
  return count;
}

/// Losses within a short time are one batch, unless workers were missing already.
void PathRunner::ask_later() {
  if (missing() > 0) {
    ask_at_s_ = waits_for_stock_ ? now_s_ : std::min(ask_at_s_, now_s_ + rules_.gather_s);
  }
}

void PathRunner::ask() {
  shun_bursts();
  bool may_have_more = missing() > 0;
  while (may_have_more) {
    const std::uint32_t floor = std::min(floor_, target());
    const std::uint32_t present = on_demand_present();
    const std::uint32_t on_demand = std::min(missing(), floor > present ? floor - present : 0);
    const std::uint32_t granted = request(on_demand, true) + request(missing(), false);
    may_have_more = granted > 0 && missing() > 0;
  }
  std::ranges::fill(losses_, 0);
  waits_for_stock_ = missing() > 0;
  const auto change = catalog_.next_change(instant_of(now_s_));
  ask_at_s_ = waits_for_stock_ && change ? seconds_of(*change) : kNever;
}

/// From the best offers; returns how many were granted.
std::uint32_t PathRunner::request(std::uint32_t wanted, bool is_on_demand_only) {
  while (wanted > 0) {
    const std::vector<std::size_t> ranking = catalog_.ranking(instant_of(now_s_));
    const auto best = std::ranges::find_if(
        ranking, [&](std::size_t offer) { return !is_on_demand_only || is_on_demand(offer); });
    if (best == ranking.end()) {
      return 0;
    }
    if (!is_refused(*best)) {
      for (std::uint32_t i = 0; i < wanted; ++i) {
        (void)grant(*best);
      }
      return wanted;
    }
  }
  return 0;
}

bool PathRunner::is_refused(std::size_t offer) {
  bool refused = now_s_ < out_until_s_[offer];
  if (!refused) {
    const auto out = draws_.stock_out(model(offer), candidate_.offers[offer], requests_[offer]++);
    refused = out.has_value();
    out_until_s_[offer] = now_s_ + out.value_or(0);
  }
  if (refused) {
    ++outcome_.refusals;
    (void)catalog_.out_of_stock(offer, instant_of(now_s_), {});
  }
  return refused;
}

std::uint64_t PathRunner::grant(std::size_t offer) {
  Server server;
  server.offer = offer;
  server.asked_s = now_s_;
  server.fate =
      draws_.server(model(offer), candidate_.offers[offer], grants_[offer]++, now_s_, job_);
  if (job_.server_lifetime_s > 0) {
    server.leaves_s = now_s_ + job_.server_lifetime_s - rules_.leave_before_end_s;
  }
  if (server.fate.runs_s > now_s_ + rules_.start_timeout_s) {
    server.leaves_s = std::min(server.leaves_s, now_s_ + rules_.start_timeout_s);
  } else if (server.fate.joins_s > server.fate.runs_s + rules_.join_timeout_s) {
    server.leaves_s = std::min(server.leaves_s, server.fate.runs_s + rules_.join_timeout_s);
  }
  servers_.push_back(server);
  return server.fate.serial;
}

/// An offer that lost at least as many servers at once as it kept is asked last for a while.
void PathRunner::shun_bursts() {
  for (std::size_t offer = 0; offer < losses_.size(); ++offer) {
    if (losses_[offer] < kBurstLeast) {
      continue;
    }
    const auto kept = static_cast<std::uint32_t>(std::ranges::count_if(
        servers_, [&](const Server& server) { return server.offer == offer && server.works; }));
    if (losses_[offer] >= kept) {
      catalog_.shun(offer, instant_of(now_s_ + rules_.shun_after_burst_s));
    }
  }
}

// --- What follows from the state ---

void PathRunner::update() {
  has_been_full_ = has_been_full_ || set_.size() >= candidate_.workers;
  Shortage why = Shortage::kNone;
  if (set_.size() < candidate_.workers) {
    why = waits_for_stock_  ? Shortage::kStockOut
          : !has_been_full_ ? Shortage::kStarting
                            : Shortage::kLost;
  }
  progress_.set_speed(set_.size() == 0 ? 0 : set_.speed() * speed_factor_, why);
  if (candidate_.falls_back && job_.deadline_s) {
    plan_fall_back();
  }
  if (has_exchanges_) {
    plan_exchange();
  }
}

/// Falls back when the rest of the work on demand takes as long as the time that is left.
void PathRunner::plan_fall_back() {
  fall_back_at_s_ = kNever;
  if (floor_ >= target()) {
    return;
  }
  double speed = 0;
  double start = 0;
  for (std::size_t offer = 0; offer < candidate_.offers.size(); ++offer) {
    const double here = is_on_demand(offer) ? set_.speed_on(offer) * speed_factor_ : 0;
    if (here > speed) {
      speed = here;
      start = model(offer).start_up.mean() + model(offer).join.mean();
    }
  }
  if (speed <= 0) {
    return;
  }
  const double slack = *job_.deadline_s - now_s_ - start - progress_.left() / speed;
  const double gain = 1 - progress_.speed() / speed;
  if (slack <= 0) {
    floor_ = target();
  } else if (gain > 0) {
    fall_back_at_s_ = now_s_ + slack / gain;
  }
}

/// When an on-demand server that was asked for in place of a spot server may be exchanged for one.
void PathRunner::plan_exchange() {
  next_exchange_ = {};
  if (exchange_ || missing() > 0 || ask_at_s_ < kNever ||
      on_demand_present() <= std::min(floor_, target())) {
    return;
  }
  const auto rank = [&](const PossibleExchange& e) {
    return std::tuple(e.due_s, catalog_.price_per_speed(e.offer),
                      -catalog_.price_per_speed(servers_[e.server].offer));
  };
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    const Server& server = servers_[i];
    for (std::size_t offer = 0;
         server.works && is_on_demand(server.offer) && offer < candidate_.offers.size(); ++offer) {
      const auto calm = catalog_.calm_from(offer, duration_of(rules_.back_to_spot_after_s));
      if (!calm || is_on_demand(offer) ||
          catalog_.price_per_speed(offer) > kWorthIt * catalog_.price_per_speed(server.offer)) {
        continue;
      }
      const PossibleExchange one{i, offer,
                                 std::max({seconds_of(*calm), exchange_due_s_, now_s_,
                                           server.asked_s + rules_.back_to_spot_after_s})};
      next_exchange_ =
          next_exchange_.due_s == kNever || rank(one) < rank(next_exchange_) ? one : next_exchange_;
    }
  }
}

void PathRunner::begin_exchange() {
  const PossibleExchange exchange = next_exchange_;
  const std::uint64_t old = servers_[exchange.server].fate.serial;
  if (is_refused(exchange.offer)) {
    end_exchange(true);
  } else {
    exchange_ = Exchange{old, grant(exchange.offer)};
  }
}

void PathRunner::end_exchange(bool failed) {
  exchange_.reset();
  exchange_failures_ = failed ? std::min(exchange_failures_ + 1, kDoublingsMax) : 0;
  exchange_due_s_ = now_s_ + rules_.back_to_spot_after_s *
                                 static_cast<double>(std::int64_t{1} << exchange_failures_);
}

}  // namespace mayfly::planner
