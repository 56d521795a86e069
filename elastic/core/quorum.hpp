#pragma once

// The consent of a majority. With standbys, a coordinator cannot know that it is the only one. Two
// of them must not continue the job in two ways, so a view needs the consent of a majority of each
// of its bases. The bases are the last view that is known to have committed a step, and every later
// view that may have committed one. A member consents if it obeys this incarnation and is part of
// the new view, or if it obeyed this coordinator last and has left for ever. ADR 15 has the
// argument. In a job without standbys no consent is needed. Pure; one thread.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "elastic/core/coordinator_options.hpp"
#include "elastic/core/membership.hpp"
#include "elastic/core/view.hpp"

namespace mayfly::elastic {

class Quorum {
 public:
  explicit Quorum(const CoordinatorOptions& options);

  /// The members of the next view. Members of the bases have places, even if they lost their place
  /// in the meantime or never knew that they had one: nobody else can give their consent.
  [[nodiscard]] Candidates next_members(const Membership& membership) const;
  /// What the next view lacks; nothing if it needs no quorum or has one.
  [[nodiscard]] std::optional<std::string> lack(const Membership& membership) const;
  /// Why a coordinator with this membership is not in charge; nothing if it needs no quorum or has
  /// one.
  [[nodiscard]] std::optional<std::string> reason_to_wait(const Membership& membership) const;
  /// View::bases of the next view. lack() must have returned nothing.
  [[nodiscard]] std::vector<ViewBase> bases(const Membership& membership) const;
  /// True if the other present members are a majority without this one. A member that is needed for
  /// the majority is not evicted for bad links: members that have left count only as long as this
  /// coordinator lives.
  [[nodiscard]] bool can_spare(MemberId id, const Membership& membership) const;

  /// A member that obeyed this coordinator last is dead or will obey no coordinator any more. Not
  /// for a member that obeyed another coordinator, because that coordinator may count it, too.
  void is_gone(MemberId id, const Membership& membership);
  /// A member of this view reports that it has committed this step.
  void committed(MemberId id, ViewId view, Step step, const Membership& membership);
  /// Some member has committed a step of the last view, or at least all of them have entered it.
  void view_is_active() { is_view_active_ = true; }
  /// Another view is the last one now.
  void view_changed() { is_view_active_ = false; }
  /// A new incarnation: members that had left obeyed an earlier one, and do not count any more.
  void incarnation_began() { gone_.clear(); }

  /// Too few members are connected, and they have waited here for the others since `since`. True if
  /// they were not waiting before.
  [[nodiscard]] bool wait(std::optional<Instant> since, Instant now);
  /// There are enough members: this coordinator is in charge.
  void found() {
    waiting_since_.reset();
    idle_since_.reset();
  }
  /// The members that waited have left, or must report again; this coordinator is still not in
  /// charge.
  void asked_again() { waiting_since_.reset(); }
  /// This process was itself suspended for `pause` and could not receive anything: waits longer.
  void extend_deadlines(Duration pause, Instant now);
  [[nodiscard]] bool is_waiting() const { return waiting_since_.has_value(); }
  /// The members have waited long enough and must try another coordinator.
  [[nodiscard]] bool has_waited_too_long(Instant now) const;
  /// This coordinator has not been in charge for at least this time.
  [[nodiscard]] bool has_idled(Duration time, Instant now) const {
    return idle_since_ && now - *idle_since_ >= time;
  }
  /// NoQuorum::skip, the same for all members that are sent away together.
  [[nodiscard]] std::uint32_t places_to_skip(Instant now) const;

  /// Invariants between any two events, in constant time.
  void check_invariants(const Membership& membership) const;

 private:
  struct Consent {
    std::set<MemberId> members;   // part of the next view, or never again part of another
    bool last_view_died = false;  // no member can have committed a step of it
  };
  [[nodiscard]] Consent consent(const Membership& membership) const;
  /// All views that can be bases of the next one.
  [[nodiscard]] std::vector<ViewBase> possible_bases(const View& last) const;
  [[nodiscard]] std::optional<std::vector<ViewBase>> bases_with(const Consent& given,
                                                                const Membership& membership) const;

  bool is_required_;
  std::uint64_t identity_;
  Duration timeout_;

  std::set<MemberId> gone_;               // have left for ever, and obeyed this coordinator last
  bool is_view_active_ = false;           // the last view; see view_is_active()
  std::optional<Instant> waiting_since_;  // members have waited for others since then
  std::optional<Instant> idle_since_;     // this coordinator has not been in charge since then
};

}  // namespace mayfly::elastic
