#pragma once

// The members of a job: the last view that was published, the workers that are its members or may
// become members of the next one, and the steps that they have committed. It records what they
// report and whether they leave; the coordinator decides what follows. Pure: it reads no clock and
// sends nothing. One thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "elastic/core/coordinator_events.hpp"
#include "elastic/core/coordinator_options.hpp"
#include "elastic/core/messages.hpp"
#include "elastic/core/peer_table.hpp"
#include "elastic/core/view.hpp"

namespace mayfly::elastic {

/// Peers that may be in the next view, in the order of their ids. Valid until a peer is removed.
using Candidates = std::vector<std::pair<MemberId, const Peer*>>;

/// The decision to evict a member.
struct Accusation {
  MemberId member{};
  std::string reason;                                 ///< readable; also sent to the member
  DismissReason dismissal = DismissReason::kEvicted;  ///< a reason for which is_eviction() is true
};

class Membership {
 public:
  explicit Membership(const CoordinatorOptions& options);

  // Queries.

  /// The last published view; nothing before the first.
  [[nodiscard]] const std::optional<View>& view() const { return view_; }
  [[nodiscard]] const Peers& peers() const { return peers_.all(); }
  /// nullptr if no peer has this id; valid until the peer is removed.
  [[nodiscard]] const Peer* find(MemberId id) const { return peers_.find(id); }
  /// The peer with this id, which must exist.
  [[nodiscard]] const Peer& at(MemberId id) const { return peers_.at(id); }
  [[nodiscard]] bool is_in_view(MemberId id) const {
    return view_ && member_of(*view_, id) != nullptr;
  }
  /// The peer exists and is active, and `view` is the present view.
  [[nodiscard]] bool is_active_in(MemberId id, ViewId view) const;
  /// The member is in this view, and `view` is the present one. True also while members return,
  /// because those of a view that is being formed wait for each other, and after the member has
  /// stopped, because with parameter servers its work continues and may produce the job's last
  /// records.
  [[nodiscard]] bool takes_part_in(MemberId id, ViewId view) const;
  [[nodiscard]] std::size_t count(Peer::Phase phase) const { return peers_.count(phase); }
  /// Whether any member that is not dismissed yet wants to leave or was asked to.
  [[nodiscard]] bool has_leavers() const { return peers_.leavers() > 0; }
  /// Whether any peer is active.
  [[nodiscard]] bool is_anyone_active() { return peers_.is_anyone_active(); }
  /// The active members, in the order of their ids.
  [[nodiscard]] std::vector<MemberId> active() const;
  [[nodiscard]] Candidates candidates() const;
  /// The members of the next view: those of the last one, then ready workers while there is room.
  /// The ready ones among `voters`, whose consent the next view may need, and a ready worker that
  /// alone has the newest state come first, and are members even without room.
  [[nodiscard]] Candidates next_members(const std::set<MemberId>& voters) const;
  /// Free places for spares, beside the members in this phase. A member that leaves needs no place:
  /// a spare may be admitted before it has left.
  [[nodiscard]] std::size_t free_places(Peer::Phase of_members) const;
  /// A candidate that wants to leave can be spared. `is_running`: the view is not ending.
  [[nodiscard]] bool may_leave(MemberId id, bool is_running) const;
  /// The highest step that any member has reported as committed; lower again after all members that
  /// held it were lost.
  [[nodiscard]] Step committed() const { return committed_; }
  /// CoordinatorOptions::steps_need_all_members; false with parameter servers.
  [[nodiscard]] bool steps_need_all_members() const { return steps_need_all_members_; }
  /// CoordinatorOptions::first_step.
  [[nodiscard]] Step first_step() const { return first_step_; }
  /// The last view is known from a log only: no member of it has reported its committed step.
  [[nodiscard]] bool is_progress_unknown() const { return is_progress_unknown_; }
  /// The highest committed step whose holders were all lost; 0 = there was none.
  [[nodiscard]] Step undone() const { return undone_; }
  /// Some member of the view has no work yet.
  [[nodiscard]] bool view_has_observers() const { return view_has_observers_; }
  /// Peer::has_started() is true for every member of the view.
  [[nodiscard]] bool all_have_started() const;
  /// The member was evicted for a cause since the last view was published.
  [[nodiscard]] bool is_fenced(MemberId id) const { return fenced_.contains(id); }

  // Workers come and go.

  /// A new worker, which is loading, under an id that was never used.
  void connect(MemberId id, const Hello& hello, Instant now);
  /// The member has asked to leave, or was asked to.
  void wants_to_leave(MemberId id, const std::string& reason);
  /// The member is told to leave; its peer exists until its connection ends. Once for each member.
  void dismiss(MemberId id);
  /// The member does not get its place back until the next view is published, or another
  /// coordinator has admitted it to a view.
  void fence(MemberId id) { fenced_.insert(id); }
  void remove(MemberId id) { peers_.remove(id); }

  // Reports of members about themselves in the present view. For all but become_ready() the member
  // must be active in it.

  /// The worker has loaded everything. Ignored unless it is loading.
  void become_ready(MemberId id, const Ready& ready, Instant now);
  void stopped(MemberId id, const Stopped& stopped);
  void formed(MemberId id);
  void synced(MemberId id, Instant now);
  void progressed(MemberId id, const Progress& progress, Instant now);
  /// True if the member is an observer that has not reported this before.
  [[nodiscard]] bool caught_up(MemberId id, Instant now);
  /// To be called when a step of the view is committed: the members that had work for the first
  /// time, in the order of their ranks, each once.
  [[nodiscard]] std::vector<Join> take_joins(Instant now);
  /// Steps that only lost members have reported do not count any more.
  void forget_claims();

  // Members that return to a coordinator that is not in charge, or was not when they were lost.

  /// The member is connected again and must report (Resume). `is_in_charge`: whether the
  /// coordinator was in charge when the member connected; otherwise it offers no checkpoint.
  void take_back(MemberId id, const Hello& hello, bool is_in_charge);
  /// Every member that was not dismissed must report again.
  void ask_all_again();
  /// The report of a returning member.
  void resumed(MemberId id, const Resume& resume);
  /// A message that follows its report; returns the step that it reports as committed, if any.
  std::optional<Step> amend_report(MemberId id, const Message& message);
  /// A returning member holds the state after this step.
  void raise_committed(Step committed) { committed_ = std::max(committed_, committed); }
  /// Members of the last view that have not reported yet.
  [[nodiscard]] std::vector<MemberId> missing() const;
  /// Gives a member the phase that its report describes. False if the job has continued without it:
  /// then it must be dismissed.
  [[nodiscard]] bool place(MemberId id, Instant now);

  // Views.

  /// The last view, as the log or a member reports it. The step after which it resumes was
  /// committed.
  void adopt(const View& view);
  /// The last view, from the log, before any member has returned.
  void restore(const View& view) {
    adopt(view);
    is_progress_unknown_ = true;
  }
  /// Every holder of the newest step is lost; the job continues after an earlier one.
  void go_back_to(Step committed);
  /// `view` is the next view; its members are active in it. Adds a note for each member that has
  /// joined. Returns the previous view.
  std::optional<View> enter(const View& view, Instant now, Outbox& outbox);

  /// Invariants between any two events, in constant time.
  void check_invariants() const;
  /// The same for every member; enter() does so, too.
  void check_members() const;

 private:
  [[nodiscard]] Peer& active_peer(MemberId id);
  [[nodiscard]] bool may_hold_state() const;
  Peer& add(MemberId id, const Hello& hello, Peer::Phase phase);
  void start_counting(const Peer& peer, bool had_started);
  void note_copy(Peer& peer, const View& view) const;
  void note_admission(const ViewMember& member, Peer& peer, const View& view, Instant now,
                      Outbox& outbox);

  std::function<bool(const std::string& address)> counts_as_worker_;
  std::uint32_t view_max_;
  bool steps_need_all_members_;
  Step first_step_;
  Duration speed_sample_;

  std::optional<View> view_;
  PeerTable peers_;
  bool view_has_observers_ = false;  // observers of view_
  std::set<MemberId> fenced_;
  Step committed_{};
  bool is_progress_unknown_ = false;  // progress of view_
  Step undone_{};
  std::size_t started_ = 0;    // members of view_ with Peer::has_started()
  bool has_starters_ = false;  // until the first commit of view_: some work for the first time
};

}  // namespace mayfly::elastic
