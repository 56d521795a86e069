#include "planner/simulation/policy_path.hpp"

#include <map>
#include <queue>
#include <tuple>

#include "cloud_hooks/core/replacement_policy.hpp"
#include "planner/simulation/draws.hpp"
#include "planner/simulation/instants.hpp"
#include "planner/simulation/progress.hpp"
#include "planner/simulation/working_set.hpp"

namespace mayfly::planner {
namespace {

using cloud_hooks::PolicyEffect;
using cloud_hooks::PolicyEvent;
using cloud_hooks::ServerState;
using cloud_hooks::ServerStatus;
namespace policy_effect = cloud_hooks::policy_effect;
namespace policy_event = cloud_hooks::policy_event;

constexpr std::uint32_t kCountMax = 1'000'000;  // one request for all servers of a batch
constexpr Duration kRarely = seconds(1'000'000'000);

/// The policy's options for the candidate. Its lists are answered when there is something new, not
/// at intervals.
cloud_hooks::ReplacementOptions options_for(const Market& market, const JobModel& job,
                                            const Candidate& candidate) {
  cloud_hooks::ReplacementOptions options;
  options.target = options.max = candidate.workers + candidate.spares;
  options.on_demand_floor = candidate.on_demand_floor;
  options.offers = terms_of(market, job, candidate);
  options.provider.count_max = kCountMax;
  options.budget = job.budget;
  options.budget_per_hour = job.budget_per_hour;
  options.lifetime_max = duration_of(job.server_lifetime_s);
  options.billed_at_least = duration_of(job.billing.least_s);
  options.list_every = kRarely;
  return options;
}

class PolicyPath {
 public:
  PolicyPath(const Market& market, const JobModel& job, const Candidate& candidate,
             double horizon_s, const PathDraws& draws)
      : market_(market),
        job_(job),
        candidate_(candidate),
        horizon_s_(horizon_s),
        draws_(draws),
        set_(market, job, candidate),
        speed_factor_(draws.factor("speed", 0, job.speed_log_sd)),
        progress_(job, candidate.checkpoint_every_s, set_.full_speed() * speed_factor_),
        policy_(options_for(market, job, candidate)),
        grants_(candidate.offers.size(), 0),
        requests_(candidate.offers.size(), 0),
        out_until_s_(candidate.offers.size(), 0) {
    for (std::size_t zone = 0; zone < market.zones.size(); ++zone) {
      shocks_.push_back(draws.shocks(market.zones[zone], zone));
    }
  }

  PathOutcome run();

 private:
  enum class What { kRuns, kJoins, kDies };
  struct Machine {
    std::size_t offer = 0;  // of the candidate
    ServerFate fate;
    ServerStatus status;
    MemberId member{};  // 0 = none
  };
  using Coming = std::tuple<double, std::string, What>;  // time, server

  void feed(const PolicyEvent& event);
  void carry_out(const PolicyEffect& effect);
  void serve(const cloud_hooks::ServerRequest& request);
  void happen(const std::string& id, What what);
  void join(Machine& machine);
  void end(const std::string& id, bool taken);
  void strike(std::size_t zone);
  void tell_list();
  void update();
  [[nodiscard]] const OfferModel& model(std::size_t offer) const {
    return market_.offers[candidate_.offers[offer]];
  }
  [[nodiscard]] bool is_spot(std::size_t offer) const {
    return model(offer).offer.market == cloud_hooks::Market::kSpot;
  }
  [[nodiscard]] std::size_t next_zone() const;

  const Market& market_;
  const JobModel& job_;
  const Candidate& candidate_;
  const double horizon_s_;
  const PathDraws draws_;
  WorkingSet set_;
  const double speed_factor_;
  Progress progress_;
  cloud_hooks::ReplacementPolicy policy_;
  std::vector<std::uint64_t> grants_;
  std::vector<std::uint64_t> requests_;
  std::vector<double> out_until_s_;
  std::vector<ShockStream> shocks_;
  std::map<std::string, Machine> machines_;  // alive
  std::map<MemberId, std::string> members_;
  std::uint64_t members_made_ = 0;
  std::priority_queue<Coming, std::vector<Coming>, std::greater<>> queue_;
  std::queue<PolicyEvent> answers_;
  double now_s_ = 0;
  bool is_feeding_ = false;
  bool lost_all_ = false;
  bool has_been_full_ = false;
  double begins_s_ = kNever;  // at the latest
  bool has_begun_ = false;
  PathOutcome outcome_;
};

PathOutcome PolicyPath::run() {
  feed(policy_event::Begin{});
  update();
  while (true) {
    const std::size_t zone = next_zone();
    const double coming = queue_.empty() ? kNever : std::get<0>(queue_.top());
    const double shock = zone < shocks_.size() ? shocks_[zone].next().at_s : kNever;
    const double wake = policy_.next_wake() ? seconds_of(*policy_.next_wake()) : kNever;
    const double begin = has_begun_ ? kNever : begins_s_;
    const double change = std::min({coming, shock, wake, begin, horizon_s_});
    const double finish = progress_.finish_s();
    now_s_ = std::min(finish, change);
    progress_.advance(now_s_);
    if (finish <= change || change >= horizon_s_) {
      outcome_.finish_s = finish <= change ? now_s_ : kNever;
      break;
    }
    if (coming <= change) {
      const auto [at, id, what] = queue_.top();
      queue_.pop();
      happen(id, what);
    } else if (shock <= change) {
      strike(zone);
    } else if (wake <= change) {
      feed(policy_event::Tick{});
    }
    if (outcome_.stopped_by_budget) {
      break;
    }
    update();
  }
  feed(policy_event::Closing{});
  feed(policy_event::Ended{});
  const Instant now = instant_of(now_s_);
  outcome_.cost = policy_.status(now).spent + job_.other_cost_per_hour * now_s_ / kSecondsPerHour;
  progress_.report(outcome_);
  return outcome_;
}

std::size_t PolicyPath::next_zone() const {
  std::size_t next = shocks_.size();
  for (std::size_t i = 0; i < shocks_.size(); ++i) {
    const double at = shocks_[i].next().at_s;
    if (at < kNever && (next == shocks_.size() || at < shocks_[next].next().at_s)) {
      next = i;
    }
  }
  return next;
}

/// Answers to what an event led to are fed after it, in order.
void PolicyPath::feed(const PolicyEvent& event) {
  answers_.push(event);
  if (is_feeding_) {
    return;
  }
  is_feeding_ = true;
  while (!answers_.empty()) {
    const PolicyEvent next = std::move(answers_.front());
    answers_.pop();
    const Instant now = instant_of(now_s_);
    for (const PolicyEffect& effect : policy_.handle(now, next)) {
      carry_out(effect);
    }
  }
  is_feeding_ = false;
}

void PolicyPath::carry_out(const PolicyEffect& effect) {
  if (const auto* request = std::get_if<policy_effect::Request>(&effect)) {
    serve(request->request);
  } else if (const auto* release = std::get_if<policy_effect::Release>(&effect)) {
    feed(policy_event::ReleaseAnswered{release->server, {}});
    end(release->server, false);
  } else if (const auto* drain = std::get_if<policy_effect::Drain>(&effect)) {
    const std::string id = members_.at(drain->member);
    Machine& machine = machines_.at(id);
    set_.leave(machine.offer);
    members_.erase(machine.member);
    machine.member = MemberId{};
    feed(policy_event::Gone{drain->member});
  } else if (std::holds_alternative<policy_effect::List>(effect)) {
    tell_list();
  } else if (std::holds_alternative<policy_effect::StopJob>(effect)) {
    outcome_.stopped_by_budget = true;
  }
}

void PolicyPath::serve(const cloud_hooks::ServerRequest& request) {
  std::size_t offer = 0;  // terms_of() names zones by the offer's number in the market
  while (std::to_string(candidate_.offers[offer]) != request.offer.zone) {
    ++offer;
  }
  const std::size_t in_market = candidate_.offers[offer];
  cloud_hooks::RequestOutcome outcome;
  if (now_s_ >= out_until_s_[offer]) {
    const auto out = draws_.stock_out(model(offer), in_market, requests_[offer]++);
    out_until_s_[offer] = out ? now_s_ + *out : 0;
  }
  if (now_s_ < out_until_s_[offer]) {
    ++outcome_.refusals;
    outcome.error = {cloud_hooks::ProviderErrorKind::kCapacity, "none"};
  }
  for (std::uint32_t i = 0; i < request.count && !outcome.error; ++i) {
    Machine machine;
    machine.offer = offer;
    machine.fate = draws_.server(model(offer), in_market, grants_[offer]++, now_s_, job_);
    machine.status.id = std::to_string(machine.fate.serial);
    machine.status.state = ServerState::kStarting;
    machine.status.request_id = request.request_id;
    machine.status.offer = request.offer;
    outcome.servers.push_back(machine.status);
    queue_.emplace(machine.fate.runs_s, machine.status.id, What::kRuns);
    if (machine.fate.dies_s < kNever) {
      queue_.emplace(machine.fate.dies_s, machine.status.id, What::kDies);
    }
    machines_.emplace(machine.status.id, machine);
  }
  feed(policy_event::Answered{request.request_id, outcome});
}

void PolicyPath::happen(const std::string& id, What what) {
  const auto found = machines_.find(id);
  if (found == machines_.end()) {
    return;
  }
  switch (what) {
    case What::kRuns:
      found->second.status.state = ServerState::kRunning;
      queue_.emplace(found->second.fate.joins_s, id, What::kJoins);
      tell_list();
      break;
    case What::kJoins: join(found->second); break;
    case What::kDies: end(id, true); break;
  }
}

void PolicyPath::join(Machine& machine) {
  machine.member = MemberId{++members_made_};
  members_[machine.member] = machine.status.id;
  const bool is_first = set_.size() == 0;
  set_.join(machine.offer);
  begins_s_ = std::min(begins_s_, now_s_ + job_.first_wait_s);
  if (is_first && lost_all_) {
    progress_.stop_until(now_s_ + job_.restore_s);
  } else if (!is_first && has_begun_) {
    progress_.stop_until(now_s_ + job_.join_stop_s);
  }
  lost_all_ = false;
  const MemberId member = machine.member;
  const double speed = set_.speed_of_one(machine.offer);
  feed(policy_event::Joined{member, machine.status.id});
  feed(policy_event::Measured{member, speed});
}

/// The server is gone, because the provider took it or because it was released.
void PolicyPath::end(const std::string& id, bool taken) {
  const auto found = machines_.find(id);
  if (found == machines_.end()) {
    return;
  }
  const Machine machine = found->second;
  machines_.erase(found);
  if (machine.member != MemberId{}) {
    members_.erase(machine.member);
    set_.leave(machine.offer);
    if (taken) {
      ++outcome_.losses;
    }
    if (taken && has_begun_) {
      progress_.stop_until(now_s_ + job_.recovery_s);
    }
    if (taken && set_.size() == 0 && has_begun_) {
      ++outcome_.all_lost;
      lost_all_ = true;
      progress_.lose_state();
    }
    feed(policy_event::Gone{machine.member});
  }
  ServerStatus gone = machine.status;
  gone.state = ServerState::kGone;
  std::vector<ServerStatus> servers{gone};
  for (const auto& [other, one] : machines_) {
    servers.push_back(one.status);
  }
  feed(policy_event::Listed{servers});
}

void PolicyPath::strike(std::size_t zone) {
  const Shock shock = shocks_[zone].next();
  shocks_[zone].pop();
  std::vector<std::string> taken;
  for (const auto& [id, machine] : machines_) {
    if (model(machine.offer).zone == zone && is_spot(machine.offer) &&
        machine.fate.runs_s <= now_s_ && draws_.is_taken(shock, zone, machine.fate.serial)) {
      taken.push_back(id);
    }
  }
  for (const std::string& id : taken) {
    end(id, true);
  }
}

void PolicyPath::tell_list() {
  std::vector<ServerStatus> servers;
  for (const auto& [id, machine] : machines_) {
    servers.push_back(machine.status);
  }
  feed(policy_event::Listed{servers});
}

void PolicyPath::update() {
  has_been_full_ = has_been_full_ || set_.size() >= candidate_.workers;
  has_begun_ = has_begun_ || has_been_full_ || now_s_ >= begins_s_;
  Shortage why = Shortage::kNone;
  if (set_.size() < candidate_.workers) {
    why = machines_.size() < candidate_.workers + candidate_.spares ? Shortage::kStockOut
          : !has_been_full_                                         ? Shortage::kStarting
                                                                    : Shortage::kLost;
  }
  const bool works = has_begun_ && set_.size() > 0;
  progress_.set_speed(works ? set_.speed() * speed_factor_ : 0, why);
}

}  // namespace

PathOutcome run_policy_path(const Market& market, const JobModel& job, const Candidate& candidate,
                            double horizon_s, std::uint64_t seed, std::uint64_t path) {
  return PolicyPath(market, job, candidate, horizon_s, PathDraws(seed, path)).run();
}

}  // namespace mayfly::planner
