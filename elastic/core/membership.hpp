#pragma once

// The members of a job: the last view that was published, the workers that are its members or may
// become members of the next, and what of the job they have committed. It notes what they say and
// where they go; what follows from it is decided elsewhere. Pure; it reads no clock and sends
// nothing.

#include <array>
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
#include "elastic/core/member_map.hpp"
#include "elastic/core/messages.hpp"
#include "elastic/core/speed_meter.hpp"
#include "elastic/core/view.hpp"

namespace mayfly::elastic {

/// What the coordinator knows of one worker. Membership alone changes it; all others read.
/// Loading -> ready -> active <-> stopped, or dismissed from anywhere. Ready and stopped peers are
/// the candidates for the next view. Returning: it has outlived its connection to us or to another
/// coordinator; what it does is in `resume`, once it has said so.
struct Peer {
  enum class Phase { kLoading, kReady, kActive, kStopped, kDismissed, kReturning };
  static constexpr std::size_t kPhases = 6;
  Phase phase = Phase::kLoading;
  std::optional<Resume> resume;  ///< kReturning
  std::string host;
  std::uint32_t pid = 0;
  std::string address;
  std::string server;
  std::uint32_t cores = 0;
  bool is_worker = true;  ///< it computes, and counts for the least number of workers
  bool leaving = false;
  std::string leave_reason;
  Step committed{};  ///< its own; from Ready, Progress or Stopped
  Step loaded{};     ///< with which it came
  SpeedMeter speed;
  Stages stages{};            ///< as it said last
  ProcessUse use{};           ///< the same
  bool copied_state = false;  ///< from another member, and not compared with all since then
  Stopped stopped;            ///< of the present view, in kStopped
  bool formed = false;        ///< in the present view
  bool synced = false;        ///< in the present view
  std::uint64_t state_bytes = 0;
  ViewId observes{};                 ///< as in the last view it was in
  std::vector<MemberId> donors;      ///< of that state
  std::optional<Instant> caught_up;  ///< in the present view
  std::optional<Join> join;          ///< until its first work is committed
  /// It has not been offered the newest checkpoint: others held a state of the job when it
  /// connected, or it was here before its connection broke.
  bool came_beside_state = false;

  /// It observes, and has not said yet that it holds a state of the job.
  [[nodiscard]] bool lacks_state() const { return observes != ViewId{} && !caught_up.has_value(); }

  /// In the present view: its group stands, and it has the state or takes it meanwhile.
  [[nodiscard]] bool has_started() const { return formed && (synced || observes != ViewId{}); }

  [[nodiscard]] bool is_candidate() const {
    return phase == Phase::kReady || phase == Phase::kStopped;
  }

  /// It computes, or could: it is in a view or a candidate, and has the state.
  [[nodiscard]] bool works() const {
    return is_worker && (phase == Phase::kActive || is_candidate()) && !lacks_state();
  }

  /// It has left the view that ends, in which it had the state or should have got it: what it says
  /// can be held against what the others say.
  [[nodiscard]] bool is_claimant() const {
    return phase == Phase::kStopped && observes == ViewId{};
  }
};

/// By id.
using Peers = MemberMap<Peer>;
/// Peers that may be in the next view, in the order of their ids. Valid as long as nobody goes.
using Candidates = std::vector<std::pair<MemberId, const Peer*>>;

/// Another one than `leaver` works, or could, and is not about to leave.
[[nodiscard]] bool leaves_somebody(const Peers& peers, MemberId leaver);
/// The same, but a member that has to go counts: it stays until there is another one, and has no
/// time to wait for one that is silent.
[[nodiscard]] bool somebody_else_works(const Peers& peers, MemberId member);

/// A judge's word about a member that is to be evicted.
struct Accusation {
  MemberId member{};
  std::string reason;                            ///< readable; the member is told it, too
  DismissReason told = DismissReason::kEvicted;  ///< any for which is_eviction() holds
};

class Membership {
 public:
  explicit Membership(const CoordinatorOptions& options);

  // What is known.

  /// The last published one; nothing before the first.
  [[nodiscard]] const std::optional<View>& view() const { return view_; }
  [[nodiscard]] const Peers& peers() const { return peers_; }
  /// nullptr if nobody has that id; valid until it is removed.
  [[nodiscard]] const Peer* find(MemberId id) const;
  /// Of one that is there.
  [[nodiscard]] const Peer& at(MemberId id) const;
  [[nodiscard]] bool is_in_view(MemberId id) const;
  /// It is there, active, and speaks of the present view.
  [[nodiscard]] bool is_active_in(MemberId id, ViewId view) const;
  /// It is in this view, and the view is the present one. Also before everybody is back: members of
  /// a view that is being formed wait for each other. And after it has stopped: with parameter
  /// servers its work goes on, and may come to the job's last records meanwhile.
  [[nodiscard]] bool takes_part_in(MemberId id, ViewId view) const;
  [[nodiscard]] std::size_t count(Peer::Phase phase) const {
    return counts_[static_cast<std::size_t>(phase)];
  }
  /// Whether anybody has to leave, or wants to, who is not dismissed yet.
  [[nodiscard]] bool has_leavers() const { return leavers_ > 0; }
  /// Looks where one was found last: while a view ends, members stop being active in any order.
  [[nodiscard]] bool is_anyone_active();
  /// In the order of their ids.
  [[nodiscard]] std::vector<MemberId> active() const;
  [[nodiscard]] Candidates candidates() const;
  /// The members of the last view, then those that are ready, as long as there is room.
  [[nodiscard]] Candidates next_members() const;
  /// For spares, beside the members in this phase. One on its way out needs no place: a spare may
  /// come before it goes.
  [[nodiscard]] std::size_t free_places(Peer::Phase of_members) const;
  /// A candidate that wants to leave can be spared. `is_running`: the view is not ending.
  [[nodiscard]] bool may_leave(MemberId id, bool is_running) const;
  /// The highest step that any member reported as committed; less after every holder of it was
  /// lost.
  [[nodiscard]] Step committed() const { return committed_; }
  /// The highest that was committed before every holder of it was lost; 0 = none was.
  [[nodiscard]] Step undone() const { return undone_; }
  /// Some member of the view has no work yet.
  [[nodiscard]] bool view_has_observers() const { return view_has_observers_; }
  /// Every member of the view has its group, and the state or takes it meanwhile.
  [[nodiscard]] bool everybody_has_started() const;
  /// It was evicted for a cause since the last view was published.
  [[nodiscard]] bool is_fenced(MemberId id) const { return fenced_.contains(id); }

  // Workers come and go.

  /// A new one, loading, under an id that was never used.
  void connect(MemberId id, const Hello& hello, Instant now);
  /// It has asked to leave, or was asked to.
  void wants_to_leave(MemberId id, const std::string& reason);
  /// It is told to go, and stays in the books until its connection ends. Once.
  void dismiss(MemberId id);
  /// Does not get its place back before the next view is published, or another coordinator has
  /// taken it into one.
  void fence(MemberId id) { fenced_.insert(id); }
  void remove(MemberId id);

  // What members say of themselves in the present view. For all but become_ready() the member
  // must be active in it.

  /// It has loaded everything. Only from one that is loading; from others it means nothing.
  void become_ready(MemberId id, const Ready& ready, Instant now);
  void stopped(MemberId id, const Stopped& stopped);
  void formed(MemberId id);
  void synced(MemberId id, Instant now);
  void progressed(MemberId id, const Progress& progress, Instant now);
  /// True if that is news of an observer.
  [[nodiscard]] bool caught_up(MemberId id, Instant now);
  /// A step of the view is committed: a member that works in it for the first time has joined. In
  /// the order of their ranks, each once.
  [[nodiscard]] std::vector<Join> take_joins(Instant now);
  /// What a member said that is gone now does not count any more.
  void forget_claims();

  // Members come back to a coordinator that is not in charge, or was not when they were lost.

  /// Its id was not removed from another job; it has to say what it does.
  void take_back(MemberId id, const Hello& hello);
  /// Every member that was not dismissed has to say it again.
  void ask_all_again();
  /// Its report, from one that is returning.
  void resumed(MemberId id, const Resume& resume);
  /// What it says after its report; the step that it says it has committed, if it does.
  std::optional<Step> amend_report(MemberId id, const Message& message);
  /// A member that is returning holds the state after this step.
  void heard_of(Step committed);
  /// Members of the last view that have not said yet what they do.
  [[nodiscard]] std::vector<MemberId> missing() const;
  /// Gives a member that has reported the place that its report gives it. False if the job has gone
  /// on without it: then it has none, and is to be dismissed.
  [[nodiscard]] bool place(MemberId id, Instant now);

  // Views.

  /// The last view, as a log or a member tells of it. The step that it begins after was committed.
  void adopt(const View& view);
  /// Every holder of the newest step is gone; the job goes on after an earlier one.
  void go_back_to(Step committed);
  /// `view` is the next one; its members are active in it. Notes the members that have joined.
  /// Returns the view before.
  std::optional<View> enter(const View& view, Instant now, Outbox& outbox);

 private:
  [[nodiscard]] Peer& peer(MemberId id);
  [[nodiscard]] Peer& active_peer(MemberId id);
  [[nodiscard]] bool may_hold_state() const;
  Peer& add(MemberId id, const Hello& hello, Peer::Phase phase);
  void start_counting(const Peer& peer, bool had_started);
  /// Every change of a phase, so that counts_ is right.
  void enter_phase(Peer& peer, Peer::Phase phase);
  void must_leave(Peer& peer);
  void note_copy(Peer& peer, const View& view) const;
  void note_admission(const ViewMember& member, Peer& peer, const View& view, Instant now,
                      Outbox& outbox);

  std::function<bool(const std::string& address)> counts_as_worker_;
  std::uint32_t view_max_;
  bool steps_need_everybody_;
  Duration speed_sample_;

  std::optional<View> view_;
  Peers peers_;
  std::array<std::size_t, Peer::kPhases> counts_{};  // of peers_, by phase
  std::size_t leavers_ = 0;                          // of peers_, not dismissed yet
  MemberId active_hint_{};                           // see is_anyone_active()
  bool view_has_observers_ = false;                  // of view_
  std::set<MemberId> fenced_;
  Step committed_{};
  Step undone_{};
  std::size_t started_ = 0;    // of view_, with Peer::has_started()
  bool has_starters_ = false;  // of view_: members that work for the first time, before a commit
};

}  // namespace mayfly::elastic
