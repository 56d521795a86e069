#include "planner/simulation/policy_path.hpp"

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>

#include "cloud_hooks/core/replacement_policy.hpp"
#include "planner/simulation/instants.hpp"
#include "planner/simulation/path_market.hpp"
#include "planner/simulation/training.hpp"

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

/// The policy's options for the candidate. Lists are answered when a server changes, not at
/// intervals.
cloud_hooks::ReplacementOptions options_for(const JobModel& job, const Candidate& candidate,
                                            const std::vector<cloud_hooks::OfferTerms>& terms) {
  cloud_hooks::ReplacementOptions options;
  options.target = options.max = candidate.workers + candidate.spares;
  options.on_demand_floor = candidate.on_demand_floor;
  options.offers = terms;
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
      : job_(job),
        target_(candidate.workers + candidate.spares),
        horizon_s_(horizon_s),
        offers_(market, candidate),
        terms_(terms_of(market, job, candidate)),
        market_(market, job, offers_),
        training_(market, job, candidate),
        policy_(options_for(job, candidate, terms_)) {
    market_.begin(draws);
    training_.begin(draws);
  }
  PolicyPath(const PolicyPath&) = delete;  // its parts refer to each other
  PolicyPath& operator=(const PolicyPath&) = delete;

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
  void strike();
  void feed_list();
  void update();

  const JobModel& job_;
  const std::uint32_t target_;
  const double horizon_s_;
  const CandidateOffers offers_;
  const std::vector<cloud_hooks::OfferTerms> terms_;
  PathMarket market_;
  Training training_;
  cloud_hooks::ReplacementPolicy policy_;
  std::map<std::string, Machine> machines_;  // alive
  std::map<MemberId, std::string> members_;
  std::uint64_t members_made_ = 0;
  std::priority_queue<Coming, std::vector<Coming>, std::greater<>> queue_;
  std::queue<PolicyEvent> answers_;
  double now_s_ = 0;
  bool is_feeding_ = false;
  PathOutcome outcome_;
};

PathOutcome PolicyPath::run() {
  feed(policy_event::Begin{});
  update();
  while (true) {
    const double coming = queue_.empty() ? kNever : std::get<0>(queue_.top());
    const double shock = market_.next_shock_s();
    const double wake = policy_.next_wake() ? seconds_of(*policy_.next_wake()) : kNever;
    const double change = std::min({coming, shock, wake, training_.begins_s(), horizon_s_});
    const double finish = training_.finish_s();
    now_s_ = std::min(finish, change);
    training_.advance(now_s_);
    if (finish <= change || change >= horizon_s_) {
      outcome_.finish_s = finish <= change ? now_s_ : kNever;
      break;
    }
    if (coming <= change) {
      const auto [at, id, what] = queue_.top();
      queue_.pop();
      happen(id, what);
    } else if (shock <= change) {
      strike();
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
  training_.report(outcome_);
  return outcome_;
}

/// Passes an event to the policy, then the answers to its effects, in order.
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
    training_.leave(machine.offer);
    members_.erase(machine.member);
    machine.member = MemberId{};
    feed(policy_event::Gone{drain->member});
  } else if (std::holds_alternative<policy_effect::List>(effect)) {
    feed_list();
  } else if (std::holds_alternative<policy_effect::StopJob>(effect)) {
    outcome_.stopped_by_budget = true;
  }
}

void PolicyPath::serve(const cloud_hooks::ServerRequest& request) {
  const auto asked = std::ranges::find(terms_, request.offer, &cloud_hooks::OfferTerms::offer);
  const auto offer = static_cast<std::size_t>(asked - terms_.begin());
  cloud_hooks::RequestOutcome outcome;
  if (market_.refuses(offer, now_s_)) {
    ++outcome_.refusals;
    outcome.error = {cloud_hooks::ProviderErrorKind::kCapacity, "none"};
  }
  for (std::uint32_t i = 0; i < request.count && !outcome.error; ++i) {
    Machine machine;
    machine.offer = offer;
    machine.fate = market_.grant(offer, now_s_);
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
      feed_list();
      break;
    case What::kJoins: join(found->second); break;
    case What::kDies: end(id, true); break;
  }
}

void PolicyPath::join(Machine& machine) {
  machine.member = MemberId{++members_made_};
  members_[machine.member] = machine.status.id;
  training_.join(machine.offer);
  const MemberId member = machine.member;
  const double speed = terms_[machine.offer].speed;
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
    if (taken) {
      training_.lose(machine.offer);
    } else {
      training_.leave(machine.offer);
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

void PolicyPath::strike() {
  const PathMarket::ZoneShock shock = market_.take_shock();
  std::vector<std::string> taken;
  for (const auto& [id, machine] : machines_) {
    if (market_.is_taken(shock, machine.offer, machine.fate, now_s_)) {
      taken.push_back(id);
    }
  }
  for (const std::string& id : taken) {
    end(id, true);
  }
}

void PolicyPath::feed_list() {
  std::vector<ServerStatus> servers;
  for (const auto& [id, machine] : machines_) {
    servers.push_back(machine.status);
  }
  feed(policy_event::Listed{servers});
}

void PolicyPath::update() {
  training_.update(machines_.size() < target_);
}

}  // namespace

PathOutcome run_policy_path(const Market& market, const JobModel& job, const Candidate& candidate,
                            double horizon_s, std::uint64_t seed, std::uint64_t path) {
  return PolicyPath(market, job, candidate, horizon_s, PathDraws(seed, path)).run();
}

}  // namespace mayfly::planner
