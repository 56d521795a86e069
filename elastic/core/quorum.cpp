#include "elastic/core/quorum.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/random.hpp"

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
  ENSURE(!base.members.empty(), "a view that needs consent had members");
  const auto agreed = static_cast<std::size_t>(std::ranges::count_if(
      base.members, [&](MemberId member) { return consenting.contains(member); }));
  const bool is_half = 2 * agreed == base.members.size();
  return 2 * agreed > base.members.size() || (is_half && consenting.contains(base.members.front()));
}

bool holds(const ViewBase& base, MemberId member) {
  return std::ranges::find(base.members, member) != base.members.end();
}

}  // namespace

Quorum::Quorum(const CoordinatorOptions& options)
    : is_required_(options.quorum), identity_(options.identity), timeout_(options.quorum_timeout) {}

Quorum::Consent Quorum::consent(const Membership& membership) const {
  Consent given;
  if (!is_required_) {
    return given;
  }
  given.members = gone_;
  // A member that obeys this coordinator will not enter or continue the last view. If it has not
  // contributed to that view's first step, it never will; and a step needs every member.
  const auto obeys = [&](MemberId id, ViewId entered, bool contributed) {
    const bool had_a_part = entered == membership.view()->id && contributed;
    given.last_view_died = given.last_view_died || !had_a_part;
    given.members.insert(id);
  };
  for (const auto& [id, peer] : next_members(membership)) {
    if (membership.is_in_view(id)) {
      obeys(id, peer->stopped.view, peer->stopped.contributed);
    } else {
      given.members.insert(id);
    }
  }
  for (const auto& [id, peer] : membership.peers()) {
    if (peer.phase() != Peer::Phase::kReturning || !peer.resume) {
      continue;
    }
    if (membership.is_in_view(id)) {
      obeys(id, peer.resume->view ? peer.resume->view->id : ViewId{},
            !peer.resume->last || peer.resume->last->contributed);
    } else {
      given.members.insert(id);
    }
  }
  return given;
}

std::vector<ViewBase> Quorum::possible_bases(const View& last) const {
  std::vector<ViewBase> bases;
  if (!is_view_active_) {
    bases = last.bases;
  }
  ViewBase newest = base_of(last);
  std::erase_if(bases, [&newest](const ViewBase& base) { return base.members == newest.members; });
  bases.push_back(std::move(newest));  // its majority is also one of the bases with equal members
  return bases;
}

Candidates Quorum::next_members(const Membership& membership) const {
  std::set<MemberId> voters;
  if (is_required_ && membership.view()) {
    for (const ViewBase& base : possible_bases(*membership.view())) {
      voters.insert(base.members.begin(), base.members.end());
    }
  }
  return membership.next_members(voters);
}

/// Nothing if too many views with different members are in doubt in a row.
std::optional<std::vector<ViewBase>> Quorum::bases_with(const Consent& given,
                                                        const Membership& membership) const {
  if (!is_required_ || !membership.view()) {
    return std::vector<ViewBase>{};
  }
  const bool is_in_doubt = !is_view_active_ && !membership.view()->bases.empty();
  std::vector<ViewBase> bases = is_in_doubt && given.last_view_died
                                    ? membership.view()->bases
                                    : possible_bases(*membership.view());
  if (bases.size() > kViewBasesMax) {
    return std::nullopt;
  }
  return bases;
}

std::optional<std::string> Quorum::lack(const Membership& membership) const {
  const Consent given = consent(membership);
  const auto bases = bases_with(given, membership);
  if (!bases) {
    return "it is unknown of too many views in a row whether they committed a step";
  }
  for (const ViewBase& base : *bases) {
    if (!has_majority(base, given.members)) {
      const auto here = std::ranges::count_if(
          base.members, [&](MemberId m) { return given.members.contains(m); });
      return std::to_string(here) + " of the " + std::to_string(base.members.size()) +
             " members of view " + std::to_string(value(base.id)) +
             " are here; a majority is needed";
    }
  }
  return std::nullopt;
}

std::optional<std::string> Quorum::reason_to_wait(const Membership& membership) const {
  if (!membership.view()) {  // its first coordinator may still be starting it, with other workers
    return "the job has had no view yet, and a standby takes over only a job that has begun; start "
           "its first coordinator again";
  }
  return lack(membership);
}

std::vector<ViewBase> Quorum::bases(const Membership& membership) const {
  const auto found = bases_with(consent(membership), membership);
  ENSURE(found, "a view is made only with a quorum");
  return *found;
}

bool Quorum::can_spare(MemberId id, const Membership& membership) const {
  Consent others = consent(membership);
  for (const MemberId gone : gone_) {
    others.members.erase(gone);
  }
  others.members.erase(id);
  const auto bases = bases_with(others, membership);
  return bases && std::ranges::all_of(*bases, [&](const ViewBase& base) {
           return has_majority(base, others.members);
         });
}

void Quorum::is_gone(MemberId id, const Membership& membership) {
  const std::optional<View>& view = membership.view();
  if (!is_required_ || !view) {
    return;
  }
  const bool matters =
      membership.is_in_view(id) ||
      std::ranges::any_of(view->bases, [id](const ViewBase& base) { return holds(base, id); });
  if (matters) {
    gone_.insert(id);
  }
}

void Quorum::committed(MemberId id, ViewId view, Step step, const Membership& membership) {
  const std::optional<View>& last = membership.view();
  const bool is_step_of_view = last && view == last->id && step > last->committed;
  is_view_active_ = is_view_active_ || (is_step_of_view && membership.is_in_view(id));
}

bool Quorum::wait(std::optional<Instant> since, Instant now) {
  ENSURE(is_required_, "only a job with a quorum waits for one");
  idle_since_ = idle_since_.value_or(now);
  if (waiting_since_) {
    return false;
  }
  waiting_since_ = since;
  return true;
}

void Quorum::extend_deadlines(Duration pause, Instant now) {
  for (std::optional<Instant>* since : {&waiting_since_, &idle_since_}) {
    if (*since) {
      *since = std::min(**since + pause, now);
    }
  }
}

/// The time-out is random: two groups of members that change coordinators at the same moments would
/// never meet.
bool Quorum::has_waited_too_long(Instant now) const {
  if (!waiting_since_) {
    return false;
  }
  const auto most = static_cast<std::uint64_t>(timeout_.count());
  const auto since = static_cast<std::uint64_t>(waiting_since_->ns);
  const std::uint64_t extra = CounterRandom(identity_).split("patience").below(since, most + 1);
  return now - *waiting_since_ >= timeout_ + Duration(static_cast<std::int64_t>(extra));
}

std::uint32_t Quorum::places_to_skip(Instant now) const {
  return static_cast<std::uint32_t>(
      CounterRandom(identity_)
          .split("elsewhere")
          .below(static_cast<std::uint64_t>(now.ns), std::uint64_t{1} << 32));
}

void Quorum::check_invariants(const Membership& membership) const {
  ENSURE(is_required_ || (gone_.empty() && !idle_since_), "a job without a quorum waits for none");
  ENSURE(!waiting_since_ || idle_since_, "a coordinator that waits for members is not in charge");
  ENSURE(!is_view_active_ || membership.view(), "steps are committed in published views");
}

}  // namespace mayfly::elastic
