#include "planner/simulation/path.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "base/time.hpp"

namespace mayfly::planner {

PathRunner::PathRunner(const Market& market, const JobModel& job, const Candidate& candidate,
                       double horizon_s)
    : job_(job),
      horizon_s_(horizon_s),
      rules_(default_rules()),
      offers_(market, candidate),
      catalog_(terms_of(market, job, candidate), {}),
      market_(market, job, offers_),
      training_(market, job, candidate),
      servers_(offers_, job.billing),
      demand_(offers_, candidate, catalog_, servers_),
      fall_back_(offers_, job, candidate, training_, demand_),
      budget_(rules_, offers_, job, servers_),
      requests_(rules_, offers_, catalog_, demand_, budget_, market_, servers_),
      exchange_(rules_, offers_, catalog_, demand_, servers_) {
  ENSURE(candidate.workers > 0 && job.work > 0, "there is work and a worker for it");
}

void PathRunner::begin(const PathDraws& draws) {
  market_.begin(draws);
  training_.begin(draws);
  servers_.clear();
  demand_.begin();
  fall_back_.begin();
  requests_.begin();
  exchange_.begin();
  now_s_ = 0;
}

PathOutcome PathRunner::run(std::uint64_t seed, std::uint64_t path) {
  begin(PathDraws(seed, path));
  requests_.ask(now_s_);
  update();
  PathOutcome outcome;
  while (true) {
    const double next_event_s = next_s();
    const double change_s = std::min(next_event_s, budget_.alarm_s(next_event_s, now_s_));
    const double finish_s = training_.finish_s();
    now_s_ = std::min(finish_s, change_s);
    training_.advance(now_s_);
    if (finish_s <= change_s || change_s >= horizon_s_) {
      outcome.finish_s = finish_s <= change_s ? now_s_ : kNever;
      break;
    }
    happen();
    if (budget_.is_used_up(now_s_)) {
      outcome.stopped_by_budget = true;
      break;
    }
    update();
  }
  outcome.cost = servers_.bill().cost(now_s_) + job_.other_cost_per_hour * now_s_ / kSecondsPerHour;
  outcome.refusals = requests_.refusals();
  training_.report(outcome);
  return outcome;
}

/// When the next event happens, at the latest at the horizon; the budget's alarm may come before.
double PathRunner::next_s() const {
  return std::min({servers_.next_s(), market_.next_shock_s(), requests_.due_s(), exchange_.due_s(),
                   fall_back_.due_s(), training_.begins_s(), horizon_s_});
}

/// Carries out the first event that is due. None is due at the budget's alarm.
void PathRunner::happen() {
  if (servers_.next_s() <= now_s_) {
    server_event(servers_.next());
  } else if (market_.next_shock_s() <= now_s_) {
    strike();
  } else if (requests_.due_s() <= now_s_) {
    requests_.ask(now_s_);
  } else if (fall_back_.due_s() <= now_s_) {
    demand_.fall_back();
  } else if (exchange_.due_s() <= now_s_) {
    begin_exchange();
    return;
  } else if (training_.begins_s() <= now_s_) {
    return;
  }
  exchange_.budget_changed();
}

void PathRunner::server_event(std::size_t place) {
  const std::size_t offer = servers_[place].offer;
  switch (servers_[place].next()) {
    case ServerEvent::kJoins: joined(place); break;
    case ServerEvent::kTaken: lose(place); break;
    case ServerEvent::kLifetimeEnds:
      let_go(place);
      requests_.lifetime_ended(now_s_);
      break;
    case ServerEvent::kNotStarted:
      let_go(place);
      requests_.not_started(offer, now_s_);
      break;
    case ServerEvent::kNotJoined:
      let_go(place);
      requests_.not_joined(offer, now_s_);
      break;
  }
}

void PathRunner::joined(std::size_t place) {
  servers_.start_work(place);
  requests_.worked(servers_[place].offer);
  training_.join(servers_[place].offer);
  if (const auto leaves = exchange_.joined(servers_[place].fate.serial, now_s_)) {
    let_go(*leaves);
  }
}

void PathRunner::strike() {
  const PathMarket::ZoneShock shock = market_.take_shock();
  for (std::size_t place = servers_.size(); place-- > 0;) {
    const PathServer& server = servers_[place];
    if (market_.is_taken(shock, server.offer, server.fate, now_s_)) {
      lose(place);
      if (requests_.due_s() <= now_s_) {  // nothing is gathered while servers are missing already
        requests_.ask(now_s_);
      }
    }
  }
}

/// The provider takes the server.
void PathRunner::lose(std::size_t place) {
  const PathServer server = servers_[place];
  remove(place);
  if (server.works) {
    training_.lose(server.offer);
    requests_.lost(server.offer, now_s_);
  } else {
    requests_.taken_early(server.offer, now_s_);
  }
}

/// The policy gives the server up.
void PathRunner::let_go(std::size_t place) {
  if (servers_[place].works) {
    training_.leave(servers_[place].offer);
  }
  remove(place);
}

void PathRunner::remove(std::size_t place) {
  const std::uint64_t serial = servers_[place].fate.serial;
  servers_.remove(place, now_s_);
  exchange_.removed(serial, now_s_);
}

void PathRunner::begin_exchange() {
  if (budget_.affordable(exchange_.offer(), 1, {}, now_s_) == 0) {
    exchange_.postpone(now_s_);
  } else if (const auto successor = requests_.ask_for_one(exchange_.offer(), now_s_)) {
    exchange_.granted(*successor);
  } else {
    exchange_.refused(now_s_);
  }
}

/// Plans the next events from the state.
void PathRunner::update() {
  training_.update(requests_.waits_for_stock());
  fall_back_.plan(now_s_);
  exchange_.plan(requests_.catalog(), requests_.is_settled(), now_s_);
}

}  // namespace mayfly::planner
