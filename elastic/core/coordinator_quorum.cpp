#include <algorithm>

#include "base/check.hpp"
#include "base/random.hpp"
#include "elastic/core/coordinator.hpp"

// With standbys, a coordinator cannot know that it is the only one. What keeps two of them from
// leading the job in two directions is that a view needs the consent of a majority of its bases:
// the last view that is known to have committed a step, and every later one of which that is not
// known. A member consents by obeying this incarnation and being part of the new view, or by being
// gone for ever as one of ours. ADR 15 has the argument.

namespace mayfly::elastic {
namespace {

ViewBase base_of(const View& view) {
  ViewBase base{view.id, {}};
  for (const ViewMember& member : view.members) {
    base.members.push_back(member.id);
  }
  return base;
}

/// More than half, or half and the first one: of two such sets at least one member is in both.
bool has_majority(const ViewBase& base, const std::set<MemberId>& consenting) {
  const auto agreed = static_cast<std::size_t>(
      std::count_if(base.members.begin(), base.members.end(),
                    [&](MemberId member) { return consenting.contains(member); }));
  const bool is_half = 2 * agreed == base.members.size();
  return 2 * agreed > base.members.size() || (is_half && consenting.contains(base.members.front()));
}

bool holds(const ViewBase& base, MemberId member) {
  return std::find(base.members.begin(), base.members.end(), member) != base.members.end();
}

}  // namespace

Coordinator::Consent Coordinator::consent() const {
  Consent given;
  if (!options_.quorum) {
    return given;
  }
  given.members = gone_;
  // It obeys us, so it will not enter or go on with the last view: one that had no part in that
  // view's first step never will, and a step needs the part of every member.
  const auto obeys = [&](MemberId id, ViewId entered, bool contributed) {
    const bool had_a_part = entered == membership_.view()->id && contributed;
    given.last_view_died = given.last_view_died || !had_a_part;
    given.members.insert(id);
  };
  if (phase_ != Phase::kResuming) {
    for (const auto& [id, peer] : membership_.next_members()) {
      if (membership_.is_in_view(id)) {
        obeys(id, peer->stopped.view, peer->stopped.contributed);
      } else {
        given.members.insert(id);
      }
    }
    return given;
  }
  for (const auto& [id, peer] : membership_.peers()) {
    if (peer.phase != Peer::Phase::kReturning || !peer.resume) {
      continue;
    }
    if (membership_.is_in_view(id)) {
      obeys(id, peer.resume->view ? peer.resume->view->id : ViewId{},
            !peer.resume->last || peer.resume->last->contributed);
    } else {
      given.members.insert(id);
    }
  }
  return given;
}

/// Nothing if too many views in a row are in doubt.
std::optional<std::vector<ViewBase>> Coordinator::next_bases(const Consent& given) const {
  if (!options_.quorum || !membership_.view()) {
    return std::vector<ViewBase>{};
  }
  if (is_view_active_ || membership_.view()->bases.empty()) {
    return std::vector<ViewBase>{base_of(*membership_.view())};
  }
  std::vector<ViewBase> bases = membership_.view()->bases;
  if (!given.last_view_died) {
    bases.push_back(base_of(*membership_.view()));
  }
  if (bases.size() > kViewBasesMax) {
    return std::nullopt;
  }
  return bases;
}

/// What the next view lacks, if it needs a quorum and has none.
std::optional<std::string> Coordinator::missing_quorum() const {
  const Consent given = consent();
  const auto bases = next_bases(given);
  if (!bases) {
    return "of too many views in a row nobody knows whether they committed a step";
  }
  for (const ViewBase& base : *bases) {
    if (!has_majority(base, given.members)) {
      const auto here = std::count_if(base.members.begin(), base.members.end(),
                                      [&](MemberId m) { return given.members.contains(m); });
      return std::to_string(here) + " of the " + std::to_string(base.members.size()) +
             " members of view " + std::to_string(value(base.id)) +
             " are here; a majority is needed";
    }
  }
  return std::nullopt;
}

/// Why this coordinator is not in charge, if it is not.
std::optional<std::string> Coordinator::reason_to_wait() const {
  if (!membership_
           .view()) {  // whoever started the job may be starting it still, with other workers
    return "the job has had no view yet, and a standby takes over only a job that has begun; start "
           "its first coordinator again";
  }
  return missing_quorum();
}

/// The others that are here are a majority by themselves. Whom that needs is not evicted for bad
/// links: a majority that leans on the word of members that are gone is lost with this coordinator.
bool Coordinator::is_dispensable(MemberId id) const {
  Consent others = consent();
  for (const MemberId gone : gone_) {
    others.members.erase(gone);
  }
  others.members.erase(id);
  const auto bases = next_bases(others);
  return bases && std::all_of(bases->begin(), bases->end(), [&](const ViewBase& base) {
           return has_majority(base, others.members);
         });
}

/// Of members that obeyed another coordinator last, that one may count the same member. It may have
/// the same incarnation: two that know of the same one before both take the next number.
void Coordinator::is_gone(MemberId id, Incarnation accepted, std::uint64_t author) {
  const bool was_ours = accepted == incarnation_ && author == options_.identity;
  if (!options_.quorum || !was_ours || !membership_.view()) {
    return;
  }
  const bool matters =
      membership_.is_in_view(id) ||
      std::any_of(membership_.view()->bases.begin(), membership_.view()->bases.end(),
                  [id](const auto& b) { return holds(b, id); });
  if (matters) {
    gone_.insert(id);
  }
}

void Coordinator::note_active(MemberId id, ViewId view, Step committed) {
  const bool is_step_of_view = membership_.view() && view == membership_.view()->id &&
                               committed > membership_.view()->committed;
  is_view_active_ = is_view_active_ || (is_step_of_view && membership_.is_in_view(id));
}

void Coordinator::wait_for_quorum(const std::string& detail) {
  if (!no_quorum_since_) {
    no_quorum_since_ = now_;
    outbox_.note("no_quorum", std::nullopt, detail);
  }
  idle_since_ = idle_since_.value_or(now_);
  wait(detail);
}

/// Never the same twice: two groups of members that changed places in step would never meet.
Duration Coordinator::quorum_patience() const {
  const auto most = static_cast<std::uint64_t>(options_.quorum_timeout.count());
  const auto since = static_cast<std::uint64_t>(no_quorum_since_->ns);
  const std::uint64_t extra =
      CounterRandom(options_.identity).split("patience").below(since, most + 1);
  return options_.quorum_timeout + Duration(static_cast<std::int64_t>(extra));
}

void Coordinator::check_quorum_time() {
  if (!options_.quorum || phase_ == Phase::kEnded) {
    return;
  }
  const bool waits = phase_ == Phase::kWaiting || phase_ == Phase::kResuming;
  if (waits && no_quorum_since_ && now_ - *no_quorum_since_ >= quorum_patience()) {
    send_away(reason_to_wait().value_or("no majority came here"));
  }
  if (waits && !options_.standby && idle_since_ &&
      now_ - *idle_since_ >= options_.min_workers_timeout) {
    end(Outcome::kTooFewWorkers, "no majority of the members came back", false);
  }
}

/// Perhaps there are enough elsewhere. Those who come back must say again whom they obey.
void Coordinator::send_away(const std::string& detail) {
  outbox_.note("no_quorum", std::nullopt, "members are sent to another coordinator: " + detail);
  const auto skip = static_cast<std::uint32_t>(
      CounterRandom(options_.identity)
          .split("elsewhere")
          .below(static_cast<std::uint64_t>(now_.ns), std::uint64_t{1} << 32));
  for (const auto& [id, peer] : membership_.peers()) {
    if (peer.phase != Peer::Phase::kDismissed) {
      outbox_.send(id, NoQuorum{detail, skip});
    }
    outbox_.add(coordinator_effect::Disconnect{id});
    detector_.forget(id);
  }
  membership_.remove_all();
  collect();
}

}  // namespace mayfly::elastic
