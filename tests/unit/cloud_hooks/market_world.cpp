#include "tests/unit/cloud_hooks/market_world.hpp"

#include <algorithm>

#include "cloud_hooks/core/provider.hpp"

namespace mayfly::cloud_hooks::test_support {
namespace {

constexpr Duration kStormTime = std::chrono::minutes(90);
constexpr Duration kCalmTime = std::chrono::minutes(50);
constexpr Duration kEndTime = std::chrono::minutes(20);

}  // namespace

MarketWorld::MarketWorld(std::uint64_t seed, Sabotage sabotage)
    : random_(CounterRandom(seed).split("market")),
      wants_back_(CounterRandom(seed).split("wants back")),
      sabotage_(sabotage) {
  set_up();
  compose(seed);
  constexpr double kUnnamedShare = 0.05;
  is_unnamed_ = RandomStream(CounterRandom(seed).split("names")).unit() < kUnnamedShare;
  result_.is_unnamed = is_unnamed_;
}

bool MarketWorld::chance(double probability) {
  return random_.unit() < probability;
}

Duration MarketWorld::between(Duration least, Duration most) {
  const double share = random_.unit();
  return least +
         Duration(static_cast<std::int64_t>(static_cast<double>((most - least).count()) * share));
}

void MarketWorld::set_up() {
  const std::size_t offers = 1 + random_.below(5);
  for (std::size_t i = 0; i < offers; ++i) {
    OfferTerms terms;
    terms.offer = {"type" + std::to_string(random_.below(3)), "zone" + std::to_string(i),
                   chance(0.7) ? Market::kSpot : Market::kOnDemand};
    terms.price_per_hour = 0.1 + 3 * random_.unit();
    terms.speed = 0.5 + random_.unit();
    options_.offers.push_back(terms);
    Pool pool;
    pool.stock = static_cast<int>(random_.below(12));
    pool.refused_chance = chance(0.3) ? 0.5 * random_.unit() : 0;
    pool.broken_image = i > 0 && chance(0.1);
    if (i > 0 && chance(0.1)) {
      pool.always = chance(0.5) ? ProviderErrorKind::kAuth : ProviderErrorKind::kConfig;
    }
    pools_.push_back(pool);
    quota_[pool_key(terms.offer)] = 2 + static_cast<int>(random_.below(30));
  }
  options_.target = 1 + static_cast<std::uint32_t>(random_.below(10));
  options_.max = options_.target + static_cast<std::uint32_t>(random_.below(5));
  options_.on_demand_floor = chance(0.3) ? static_cast<std::uint32_t>(random_.below(3)) : 0;
  options_.provider.count_max = chance(0.5) ? 1 : 1 + static_cast<std::uint32_t>(random_.below(8));
  options_.provider.survives_us = chance(0.7);
  if (chance(0.4)) {
    options_.budget = 1 + 20 * random_.unit();
  }
  budget_ = options_.budget;
  if (chance(0.4)) {
    options_.budget_per_hour = 1 + 10 * random_.unit();
  }
  if (chance(0.3)) {
    options_.lifetime_max = std::chrono::minutes(20 + random_.below(120));
  }
  if (sabotage_ == Sabotage::kNoBudget) {
    options_.budget.reset();
  }
  lost_answers_ = chance(0.5) ? 0.3 * random_.unit() : 0;
  slow_answers_ = chance(0.3) ? 0.3 : 0;
  list_errors_ = chance(0.3) ? 0.5 * random_.unit() : 0;
  release_errors_ = chance(0.3) ? 0.3 : 0;
  hazard_per_hour_ = 2 * random_.unit();
  wanted_ = options_.target;
}

/// Some jobs want a composition, a number of servers of each offer, instead of a floor of on-demand
/// servers.
void MarketWorld::compose(std::uint64_t seed) {
  constexpr double kComposedShare = 0.2;
  RandomStream random(CounterRandom(seed).split("composition"));
  if (random.unit() >= kComposedShare) {
    return;
  }
  options_.on_demand_floor = 0;
  for (std::uint32_t i = 0; i < options_.target; ++i) {
    ++options_.offers[random.below(options_.offers.size())].wanted;
  }
}

void MarketWorld::begin_policy(const PolicyStatus& before, bool restarted) {
  options_.identity = random_.bits();
  options_.spent_before = before.spent;
  options_.per_hour_before = before.per_hour;
  options_.restarted = restarted;
  options_.target = wanted_;
  policy_ = std::make_unique<ReplacementPolicy>(options_);
  ++term_;
  wake_set_.reset();
  feed(policy_event::Begin{});
}

void MarketWorld::after(Duration delay, std::function<void()> act) {
  queue_.push({now_ + delay, events_made_++, std::move(act)});
}

void MarketWorld::violated(const std::string& what) {
  if (result_.violations.size() < 5) {
    result_.violations.push_back(std::to_string(to_seconds(now_ - Instant{})) + " s: " + what);
  }
}

MarketResult MarketWorld::run() {
  begin_policy({}, false);
  after(between(seconds(1), seconds(200)), [this] { disturb(); });
  after(kStormTime, [this] { calm_down(); });
  after(kStormTime + kCalmTime, [this] {
    check_calm();
    ended_ = true;
    members_.clear();
    feed(policy_event::Ended{});
  });
  const Instant end = Instant{} + kStormTime + kCalmTime + kEndTime;
  while (!queue_.empty() && queue_.top().at < end) {
    const Event event = queue_.top();
    queue_.pop();
    now_ = event.at;
    event.act();
    check("after an event");
  }
  if (!alive().empty()) {
    violated("leaked " + alive().front() + " and " + std::to_string(alive().size() - 1) + " more");
  }
  if (!policy_->settled()) {
    violated("not settled");
  }
  return result_;
}

void MarketWorld::feed(const PolicyEvent& event) {
  const std::vector<PolicyEffect> effects = policy_->handle(now_, event);
  const PolicyStatus status = policy_->status(now_);
  const bool asks = std::any_of(effects.begin(), effects.end(), [](const PolicyEffect& effect) {
    const auto* request = std::get_if<policy_effect::Request>(&effect);
    return request != nullptr && !request->is_repeat;
  });
  if (asks && status.staying + status.coming > options_.max) {
    violated("asks for more than max");
  }
  for (const PolicyEffect& effect : effects) {
    carry_out(effect);
  }
  wake();
}

void MarketWorld::wake() {
  const std::optional<Instant> next = policy_->next_wake();
  if (!next || (wake_set_ && *wake_set_ == *next)) {
    return;
  }
  wake_set_ = next;
  if (*next <= now_) {
    violated("wants to be woken in the past");
    return;
  }
  queue_.push({*next, events_made_++, [this, at = *next, term = term_] {
                 if (term == term_ && wake_set_ == at) {
                   wake_set_.reset();
                   feed(policy_event::Tick{});
                 }
               }});
}

void MarketWorld::carry_out(const PolicyEffect& effect) {
  if (const auto* request = std::get_if<policy_effect::Request>(&effect)) {
    ServerRequest sent = request->request;
    result_.repeats += request->is_repeat ? 1 : 0;
    if (request->is_repeat && sabotage_ == Sabotage::kNewIdForRepeats) {
      sent.request_id = make_request_id(CounterRandom(77), events_made_);
    }
    take_request(sent);
  } else if (const auto* release = std::get_if<policy_effect::Release>(&effect)) {
    take_release(release->server);
  } else if (std::holds_alternative<policy_effect::List>(effect)) {
    take_list();
  } else if (const auto* drain = std::get_if<policy_effect::Drain>(&effect)) {
    after(between(milliseconds(10), seconds(5)), [this, member = drain->member] { leave(member); });
  } else if (std::holds_alternative<policy_effect::StopJob>(effect)) {
    job_stopped_ = true;
    ++result_.stopped_by_budget;
  } else if (const auto* note = std::get_if<policy_effect::Note>(&effect)) {
    result_.exchanges += note->kind.starts_with("back_to_") ? 1 : 0;
  }
}

// --- Events of the job ---

void MarketWorld::disturb() {
  if (calm_) {
    return;
  }
  const std::vector<std::string> all = alive();
  const double pick = random_.unit();
  if (pick < 0.1 && !all.empty()) {  // a burst: most servers of one offer
    const std::size_t offer = machines_.at(all[random_.below(all.size())]).offer;
    for (const std::string& id : all) {
      if (machines_.at(id).offer == offer && chance(0.8)) {
        take_away(id, chance(0.5));
      }
    }
  } else if (pick < 0.25 && !all.empty()) {
    const std::string id = all[random_.below(all.size())];
    const bool comes_back = chance(0.5);
    lose_worker(id);
    if (comes_back) {
      after(between(milliseconds(500), seconds(30)), [this, id] { join(id); });
    }
  } else if (pick < 0.35) {
    for (Pool& pool : pools_) {
      pool.stock = chance(0.4) ? 0 : static_cast<int>(random_.below(15));
    }
  } else if (pick < 0.4) {
    wanted_ = 1 + static_cast<std::uint32_t>(random_.below(options_.max));
    feed(policy_event::Scaled{wanted_});
  } else if (pick < 0.43 && options_.provider.survives_us) {
    restart_coordinator();
  }
  for (const std::string& id : alive()) {
    if (chance(hazard_per_hour_ / 30)) {  // this runs about thirty times an hour
      take_away(id, chance(0.6));
    }
  }
  after(between(seconds(1), seconds(240)), [this] { disturb(); });
}

void MarketWorld::restart_coordinator() {
  ++result_.restarts;
  PolicyStatus last = policy_->status(now_);
  const Duration away = between(seconds(1), seconds(60));
  last.spent += last.per_hour * to_seconds(away) / kSecondsPerHour;
  ++term_;  // answers to the old coordinator are lost
  // No coordinator would see what happens meanwhile. For simplicity, nothing happens until it is
  // back.
  now_ = now_ + away;
  std::priority_queue<Event> later;
  while (!queue_.empty()) {
    Event event = queue_.top();
    queue_.pop();
    event.at = std::max(event.at, now_);
    later.push(std::move(event));
  }
  queue_ = std::move(later);
  begin_policy(last, true);
  for (const auto& [member, id] : std::map<MemberId, std::string>(members_)) {
    tell_of(member, id);
  }
}

void MarketWorld::calm_down() {
  calm_ = true;
  for (Pool& pool : pools_) {
    pool.broken_image = false;
  }
  pools_[0] = {1000, 0, false, {}};
  quota_[pool_key(options_.offers[0].offer)] = 1000;
  for (auto& [id, machine] : machines_) {
    machine.never_joins = machine.never_joins && (machine.gone || machine.member);
  }
  feed(policy_event::Scaled{wanted_});
  // It is sent again after the last answers from before the calm, which may report quotas.
  after(std::chrono::minutes(2), [this] { feed(policy_event::Scaled{wanted_}); });
}

}  // namespace mayfly::cloud_hooks::test_support
