#include "planner/simulation/path.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "cloud_hooks/core/replacement_options.hpp"
#include "planner/simulation/instants.hpp"

namespace mayfly::planner {
namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

}  // namespace

PolicyRules default_rules() {
  const cloud_hooks::ReplacementOptions options;
  return {to_seconds(options.gather),           to_seconds(options.start_timeout),
          to_seconds(options.join_timeout),     to_seconds(options.leave_timeout),
          to_seconds(options.shun_after_burst), to_seconds(options.back_to_spot_after),
          to_seconds(options.stop_margin)};
}

double PathRunner::Server::next_s() const {
  const double end = std::min(fate.dies_s, leaves_s);
  return works ? end : std::min(fate.joins_s, end);
}

PathRunner::PathRunner(const Market& market, const JobModel& job, const Candidate& candidate,
                       double horizon_s)
    : job_(job),
      candidate_(candidate),
      horizon_s_(horizon_s),
      rules_(default_rules()),
      offers_(market, candidate),
      fresh_catalog_(terms_of(market, job, candidate), {}),
      wanted_(fresh_catalog_.wanted_of(target())),
      market_(market, job, offers_),
      training_(market, job, candidate),
      catalog_(fresh_catalog_) {
  ENSURE(candidate.workers > 0 && job.work > 0, "there is work and someone to do it");
  bool has_spot = false;
  bool has_on_demand = false;
  for (std::size_t offer = 0; offer < candidate_.offers.size(); ++offer) {
    price_per_speed_.push_back(fresh_catalog_.price_per_speed(offer));
    (offers_.is_on_demand(offer) ? has_on_demand : has_spot) = true;
  }
  has_exchanges_ = ((has_spot && has_on_demand) || fresh_catalog_.has_composition()) &&
                   rules_.back_to_spot_after_s > 0;
}

void PathRunner::begin(std::uint64_t seed, std::uint64_t path) {
  const PathDraws draws(seed, path);
  market_.begin(draws);
  training_.begin(draws);
  catalog_ = fresh_catalog_;
  outcome_ = {};
  now_s_ = 0;
  servers_.clear();
  events_.clear();
  const std::size_t offers = candidate_.offers.size();
  granted_ = 0;
  counts_.assign(offers, 0);
  losses_.assign(offers, 0);
  ask_at_s_ = 0;
  waits_for_stock_ = false;
  floor_ = candidate_.on_demand_floor;
  fall_back_at_s_ = kNever;
  exchange_.reset();
  next_exchange_ = {};
  exchange_failures_ = 0;
  exchange_due_s_ = 0;
  exchange_poor_until_s_ = 0;
  closed_bill_ = billed_most_ = billed_at_s_ = billed_per_hour_ = 0;
}

PathOutcome PathRunner::run(std::uint64_t seed, std::uint64_t path) {
  begin(seed, path);
  ask();
  update();
  while (true) {
    const std::size_t server = next_server();
    const double other = std::min({server == kNone ? kNever : servers_[server].next_s(),
                                   market_.next_shock_s(), ask_at_s_, next_exchange_.due_s,
                                   fall_back_at_s_, training_.begins_s(), horizon_s_});
    const double change = std::min(other, budget_alarm_s(other));
    const double finish = training_.finish_s();
    now_s_ = std::min(finish, change);
    training_.advance(now_s_);
    if (finish <= change || change >= horizon_s_) {
      outcome_.finish_s = finish <= change ? now_s_ : kNever;
      break;
    }
    happen(server, change);
    if (is_budget_used_up()) {
      outcome_.stopped_by_budget = true;
      break;
    }
    update();
  }
  for (const Server& server : servers_) {
    outcome_.cost += cost_of(server);
  }
  outcome_.cost += job_.other_cost_per_hour * now_s_ / kSecondsPerHour;
  training_.report(outcome_);
  return outcome_;
}

std::size_t PathRunner::next_server() const {
  return events_.first().value_or(kNone);
}

/// The one of the next events whose time it is.
void PathRunner::happen(std::size_t server, double at_s) {
  if (server != kNone && servers_[server].next_s() <= at_s) {
    server_event(server);
  } else if (market_.next_shock_s() <= at_s) {
    strike();
  } else if (ask_at_s_ <= at_s) {
    ask();
  } else if (fall_back_at_s_ <= at_s) {
    floor_ = target();
  } else if (next_exchange_.due_s <= at_s) {
    begin_exchange();
    return;
  } else if (training_.begins_s() <= at_s) {
    return;
  }
  exchange_poor_until_s_ = 0;  // any news is a reason to try again
}

void PathRunner::server_event(std::size_t index) {
  const Server& server = servers_[index];
  if (!server.works && server.fate.joins_s <= std::min(server.fate.dies_s, server.leaves_s)) {
    joined(index);
  } else if (server.fate.dies_s <= server.leaves_s) {
    lose(index);
    ask_later();
  } else {
    let_go(index);
    ask_later();
  }
}

void PathRunner::joined(std::size_t index) {
  Server& server = servers_[index];
  server.works = true;
  events_.set(index, server.next_s());
  catalog_.worked(server.offer);
  training_.join(server.offer);
  if (exchange_ && exchange_->new_serial == server.fate.serial) {
    const std::uint64_t old = exchange_->old_serial;
    end_exchange(false);
    let_go(static_cast<std::size_t>(
        std::ranges::find_if(servers_, [&](const Server& s) { return s.fate.serial == old; }) -
        servers_.begin()));
  }
}

void PathRunner::strike() {
  const PathMarket::ZoneShock shock = market_.take_shock();
  for (std::size_t i = servers_.size(); i-- > 0;) {
    const Server& server = servers_[i];
    if (market_.is_taken(shock, server.offer, server.fate, now_s_)) {
      lose(i);
      ask_later();
      if (ask_at_s_ <= now_s_) {  // nothing is gathered while servers are missing already
        ask();
      }
    }
  }
}

/// The provider takes the server.
void PathRunner::lose(std::size_t index) {
  const Server& server = servers_[index];
  if (server.works) {
    ++losses_[server.offer];
    training_.lose(server.offer);
  } else {
    (void)catalog_.out_of_stock(server.offer, instant_of(now_s_), {});
  }
  remove(index);
}

/// The policy gives the server up.
void PathRunner::let_go(std::size_t index) {
  const Server& server = servers_[index];
  if (server.works) {
    training_.leave(server.offer);
  } else {  // it did not start in time
    (void)catalog_.out_of_stock(server.offer, instant_of(now_s_), {});
  }
  remove(index);
}

void PathRunner::remove(std::size_t index) {
  const Server& server = servers_[index];
  outcome_.cost += cost_of(server);
  closed_bill_ += billed(server.offer, server.asked_s);
  bill(-offers_[server.offer].price_per_hour, 0);
  const std::uint64_t serial = server.fate.serial;
  --counts_[server.offer];
  servers_[index] = servers_.back();
  events_.set(index, servers_[index].next_s());
  servers_.pop_back();
  events_.set(servers_.size(), kNever);
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
  return offers_[server.offer].price_per_hour * std::max(now_s_ - from, job_.billing.least_s) /
         kSecondsPerHour;
}

// --- What follows from the state ---

void PathRunner::update() {
  training_.update(waits_for_stock_);
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
    const double here = offers_.is_on_demand(offer) ? training_.speed_on(offer) : 0;
    if (here > speed) {
      speed = here;
      start = offers_[offer].start_up.mean() + offers_[offer].join.mean();
    }
  }
  if (speed <= 0) {
    return;
  }
  const double slack = *job_.deadline_s - now_s_ - start - training_.left() / speed;
  const double gain = 1 - training_.speed() / speed;
  if (slack <= 0) {
    floor_ = target();
  } else if (gain > 0) {
    fall_back_at_s_ = now_s_ + slack / gain;
  }
}

}  // namespace mayfly::planner
