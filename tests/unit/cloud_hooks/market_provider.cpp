// The provider's side of MarketWorld: it answers requests, and creates and ends machines.

#include <algorithm>

#include "cloud_hooks/core/provider.hpp"
#include "tests/unit/cloud_hooks/market_world.hpp"

namespace mayfly::cloud_hooks::test_support {

std::string MarketWorld::pool_key(const Offer& offer) {
  return offer.machine_type + to_string(offer.market);
}

void MarketWorld::take_request(const ServerRequest& request) {
  const auto [known, is_new] = requests_.try_emplace(request.request_id, request);
  if (!(known->second == request)) {
    violated("a request id means two things");
  }
  if (request.request_id.size() != 36 || request.count == 0 ||
      request.count > options_.provider.count_max) {
    violated("a malformed request");
  }
  RequestOutcome outcome;
  const bool is_lost = !calm_ && chance(lost_answers_);
  if (is_lost && chance(0.5)) {  // the request never arrived
    outcome.error = {ProviderErrorKind::kRate, "no answer"};
  } else {
    outcome = serve(request);
    if (is_lost) {
      outcome = {{}, ProviderError{ProviderErrorKind::kRate, "no answer"}};
    }
  }
  const Duration delay = !calm_ && chance(slow_answers_) ? between(seconds(1), seconds(20))
                                                         : between(milliseconds(100), seconds(2));
  after(delay, [this, term = term_, id = request.request_id, outcome] {
    if (term == term_) {
      feed(policy_event::Answered{id, outcome});
    }
  });
}

RequestOutcome MarketWorld::serve(const ServerRequest& request) {
  const auto offer =
      std::find_if(options_.offers.begin(), options_.offers.end(),
                   [&](const OfferTerms& terms) { return terms.offer == request.offer; });
  const auto index = static_cast<std::size_t>(offer - options_.offers.begin());
  Pool& pool = pools_[index];
  RequestOutcome outcome;
  std::uint32_t made = 0;
  for (const auto& [id, machine] : machines_) {
    if (machine.request_id == request.request_id) {
      ++made;
      outcome.servers.push_back(describe(id));
    }
  }
  int same = 0;
  for (const auto& [id, machine] : machines_) {
    same +=
        !machine.gone && pool_key(options_.offers[machine.offer].offer) == pool_key(request.offer);
  }
  for (; made < request.count && !outcome.error; ++made) {
    if (pool.always) {
      outcome.error = {*pool.always, "broken"};
    } else if (same >= quota_[pool_key(request.offer)]) {
      outcome.error = {ProviderErrorKind::kQuota, "quota"};
    } else if (pool.stock <= 0 || (!calm_ && chance(pool.refused_chance))) {
      outcome.error = {ProviderErrorKind::kCapacity, "none"};
      for (std::size_t i = 0; i < pools_.size() && chance(0.5); ++i) {
        if (pools_[i].stock > 0) {
          outcome.error->zones_available.push_back(options_.offers[i].offer.zone);
        }
      }
    } else {
      --pool.stock;
      ++same;
      create(request);
      outcome.servers.push_back(describe("m" + std::to_string(machines_made_)));
    }
  }
  return outcome;
}

void MarketWorld::create(const ServerRequest& request) {
  const std::string id = "m" + std::to_string(++machines_made_);
  Machine machine;
  const auto offer =
      std::find_if(options_.offers.begin(), options_.offers.end(),
                   [&](const OfferTerms& terms) { return terms.offer == request.offer; });
  machine.offer = static_cast<std::size_t>(offer - options_.offers.begin());
  machine.request_id = request.request_id;
  machine.created = now_;
  machine.quiet_since = now_;
  machine.listed_from = now_ + (calm_ ? Duration(0) : between(Duration(0), seconds(10)));
  machine.never_joins = pools_[machine.offer].broken_image || (!calm_ && chance(0.03));
  machines_.emplace(id, machine);
  ++result_.created;
  after(between(seconds(3), seconds(60)), [this, id] { boot(id); });
  if (request.lifetime_max > Duration(0)) {
    after(request.lifetime_max, [this, id] { take_away(id, false); });
  }
  if (!calm_ && chance(0.05)) {
    after(between(milliseconds(1), seconds(20)), [this, id] { take_away(id, false); });
  }
}

void MarketWorld::boot(const std::string& id) {
  Machine& machine = machines_.at(id);
  if (machine.gone) {
    return;
  }
  machine.state = machine.releasing ? machine.state : ServerState::kRunning;
  if (!machine.never_joins) {
    after(between(seconds(1), seconds(30)), [this, id] { join(id); });
  }
}

void MarketWorld::join(const std::string& id) {
  Machine& machine = machines_.at(id);
  if (machine.gone || machine.member || ended_ || job_stopped_) {
    return;
  }
  const MemberId member{++members_made_};
  machine.member = member;
  members_[member] = id;
  tell_of(member, id);
  feed(policy_event::Measured{member,
                              options_.offers[machine.offer].speed * (0.9 + 0.2 * random_.unit())});
}

void MarketWorld::tell_of(MemberId member, const std::string& id) {
  feed(policy_event::Joined{member, is_unnamed_ ? "" : id});
}

void MarketWorld::leave(MemberId member) {
  const auto found = members_.find(member);
  if (found == members_.end()) {
    return;
  }
  machines_.at(found->second).member.reset();
  machines_.at(found->second).quiet_since = now_;
  machines_.at(found->second).never_joins = true;
  if (is_unnamed_) {  // its script ends the machine; the policy cannot know which one to release
    after(between(seconds(1), seconds(20)), [this, id = found->second] { end_machine(id); });
  }
  members_.erase(found);
  feed(policy_event::Gone{member});
}

void MarketWorld::lose_worker(const std::string& id) {
  Machine& machine = machines_.at(id);
  if (!machine.member) {
    return;
  }
  const MemberId member = *machine.member;
  machine.member.reset();
  machine.quiet_since = now_;
  members_.erase(member);
  feed(policy_event::Gone{member});
}

void MarketWorld::take_away(const std::string& id, bool with_notice) {
  Machine& machine = machines_.at(id);
  if (machine.gone || ended_) {
    return;
  }
  ++result_.taken;
  if (with_notice && machine.member) {
    machine.state = ServerState::kStopping;
    feed(policy_event::Leaving{*machine.member});
    after(seconds(30), [this, id] { end_machine(id); });
    return;
  }
  end_machine(id);
}

void MarketWorld::end_machine(const std::string& id) {
  Machine& machine = machines_.at(id);
  if (machine.gone) {
    return;
  }
  machine.gone = now_;
  machine.state = ServerState::kGone;
  ++pools_[machine.offer].stock;
  lose_worker(id);
}

void MarketWorld::take_release(const std::string& id) {
  if (sabotage_ == Sabotage::kForgetsReleases) {
    return;
  }
  const bool refused = !calm_ && !ended_ && chance(release_errors_);
  after(between(milliseconds(50), seconds(2)), [this, term = term_, id, refused] {
    if (!refused) {
      Machine& machine = machines_.at(id);
      machine.releasing = true;
      machine.state = machine.gone ? ServerState::kGone : ServerState::kStopping;
      after(between(seconds(1), seconds(15)), [this, id] { end_machine(id); });
    }
    if (term == term_) {
      std::optional<ProviderError> error;
      if (refused) {
        error = {ProviderErrorKind::kRate, "busy"};
      }
      feed(policy_event::ReleaseAnswered{id, error});
    }
  });
}

void MarketWorld::take_list() {
  const Instant asked = now_;
  after(between(milliseconds(50), seconds(3)), [this, term = term_, asked] {
    if (term != term_) {
      return;
    }
    if (!calm_ && chance(list_errors_)) {
      feed(policy_event::Listed{ProviderError{ProviderErrorKind::kRate, "busy"}});
      return;
    }
    std::vector<ServerStatus> servers;
    for (const auto& [id, machine] : machines_) {
      const bool remembered = !machine.gone || now_ - *machine.gone < seconds(60);
      if (machine.listed_from <= asked && remembered) {
        servers.push_back(describe(id));
      }
    }
    constexpr double kWantedBack = 0.03;
    const bool wants_some = !calm_ && wants_back_.unit() < kWantedBack;
    const auto wanted_back = wants_some ? 1 + static_cast<std::uint32_t>(wants_back_.below(3)) : 0;
    feed(policy_event::Listed{servers, wanted_back});
  });
}

ServerStatus MarketWorld::describe(const std::string& id) const {
  const Machine& machine = machines_.at(id);
  ServerStatus status;
  status.id = id;
  status.state = machine.state;
  status.request_id = machine.request_id;
  status.offer = options_.offers[machine.offer].offer;
  status.uptime = now_ - machine.created;
  return status;
}

}  // namespace mayfly::cloud_hooks::test_support
