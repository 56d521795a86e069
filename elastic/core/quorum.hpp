#pragma once

// The consent of a majority. With standbys, a coordinator cannot know that it is the only one. What
// keeps two of them from leading the job in two directions is that a view needs the consent of a
// majority of its bases: the last view that is known to have committed a step, and every later one
// of which that is not known. A member consents by obeying this incarnation and being part of the
// new view, or by being gone for ever as one of ours. ADR 15 has the argument. Pure. In a job
// without standbys nothing is ever missing.

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

  /// What the next view lacks, if it needs a quorum and has none.
  [[nodiscard]] std::optional<std::string> lack(const Membership& membership) const;
  /// Why a coordinator with this membership is not in charge, if a quorum is required and missing.
  [[nodiscard]] std::optional<std::string> reason_to_wait(const Membership& membership) const;
  /// Of the next view, for View::bases. Nothing may be missing.
  [[nodiscard]] std::vector<ViewBase> bases(const Membership& membership) const;
  /// The others that are here are a majority by themselves. Whom that needs is not evicted for bad
  /// links: a majority that leans on the word of members that are gone is lost with this
  /// coordinator.
  [[nodiscard]] bool can_spare(MemberId id, const Membership& membership) const;

  /// A member that obeyed us last is dead or will follow nobody any more. Not for one that obeyed
  /// another coordinator: that one may count it, too.
  void is_gone(MemberId id, const Membership& membership);
  /// A member of this view says that it has committed this step.
  void committed(MemberId id, ViewId view, Step step, const Membership& membership);
  /// Somebody has committed a step of the last view.
  void view_is_active() { is_view_active_ = true; }
  /// Another view is the last one now.
  void view_changed() { is_view_active_ = false; }
  /// The gone obeyed an incarnation that is over.
  void incarnation_began() { gone_.clear(); }

  /// Members wait here for others since `since`, and there are not enough. True if that is news.
  [[nodiscard]] bool wait(std::optional<Instant> since, Instant now);
  /// There are enough: this coordinator is in charge.
  void found() {
    waiting_since_.reset();
    idle_since_.reset();
  }
  /// Those who waited have gone, or are asked once more; it is not in charge all the same.
  void asked_again() { waiting_since_.reset(); }
  [[nodiscard]] bool is_waiting() const { return waiting_since_.has_value(); }
  /// They have waited here for long enough, and are to try another coordinator.
  [[nodiscard]] bool is_out_of_patience(Instant now) const;
  /// For so long it has not been in charge.
  [[nodiscard]] bool has_idled(Duration time, Instant now) const {
    return idle_since_ && now - *idle_since_ >= time;
  }
  /// NoQuorum::skip, the same for all that are sent away now.
  [[nodiscard]] std::uint32_t places_to_skip(Instant now) const;

 private:
  struct Consent {
    std::set<MemberId> members;   // who would be part of the next view, or can never be of another
    bool last_view_died = false;  // nobody can have committed a step of it
  };
  [[nodiscard]] Consent consent(const Membership& membership) const;
  [[nodiscard]] std::optional<std::vector<ViewBase>> bases_with(const Consent& given,
                                                                const Membership& membership) const;

  bool is_required_;
  std::uint64_t identity_;
  Duration timeout_;

  std::set<MemberId> gone_;      // of the last view and its bases, for ever; they obeyed us last
  bool is_view_active_ = false;  // somebody has committed a step of the last view
  std::optional<Instant> waiting_since_;  // some members, for others
  std::optional<Instant> idle_since_;     // this coordinator, for being in charge
};

}  // namespace mayfly::elastic
