#pragma once

// The member's side of membership, as a pure state machine: it takes one event and returns the
// effects that the adapter (elastic/net/member_client) must carry out, in order. It never blocks
// and does no I/O. One thread.
//
// Life of a member:
//
//   loading --ready--> waiting --NewView--> running --Stop / group broke--> stopping --trainer
//   stopped--> waiting --NewView--> running ... --Dismiss--> gone
//
// All of this continues while there is no coordinator; messages that could not be sent are part of
// the Resume that answers the next Welcome. The adapter keeps one connection at a time and passes
// only the messages of that connection to the machine. While there is no connection, it tries to
// connect, to its own coordinator first, then to the others of its list, with a Hello that
// introduce() has filled in.
//
// The trainer (the thread that computes) runs one view at a time: RunView starts it, TrainerStopped
// ends it, whatever the cause. A view is announced only after this member has reported Stopped for
// the one before, so at most one group exists at any time.
//
// In a job with a quorum a worker that is evicted and joins again keeps its id: its vote may be
// needed for views of which it was a member. Leave then contains a Former, from which the process
// makes the next machine (ADR 15).

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "elastic/core/messages.hpp"
#include "elastic/core/view.hpp"

namespace mayfly::elastic {

/// What a member that was evicted and may join again under its id must remember.
struct Former {
  MemberId id{};
  std::uint64_t job = 0;
  Incarnation incarnation{};  ///< the highest incarnation that it has accepted,
  std::uint64_t author = 0;   ///< and its coordinator process
  // As in Resume:
  std::optional<View> view;
  bool is_active = false;
  std::optional<Stopped> last;
};

namespace member_event {
/// A message of the coordinator at the other end of the present connection: Welcome, Refused,
/// NoQuorum, Stop, NewView, NewViewDelta or Dismiss (other messages are ignored).
struct Received {
  Message message;
};
/// The worker has loaded everything; `committed` is the state it holds.
struct Loaded {
  Step committed{};
  std::uint64_t state_bytes = 0;  ///< see Ready
};
/// The trainer left the view's group: because it was told to, at an agreed boundary, after the last
/// step, or because the group broke.
struct TrainerStopped {
  Stopped report;
};
/// The trainer has committed a step: the first of a view, then at most every 100 ms.
struct Progressed {
  Progress report;
};
struct GroupFormed {
  ViewId view{};
};
struct StateSynced {
  ViewId view{};
};
/// An observer of this view holds the state after `committed`, and commits every further step.
struct StateCaughtUp {
  ViewId view{};
  Step committed{};
};
/// SIGTERM, a notice or a drain command reached this worker.
struct LeaveAsked {
  std::string reason;
};
/// The control connection was lost. The member continues; the adapter connects again.
struct CoordinatorLost {};
/// No coordinator could be reached within the worker's coordinator_timeout. The member continues
/// with its view while its group works. When it needs a coordinator it leaves, unless a Welcome has
/// arrived by then.
struct CoordinatorGivenUp {};
}  // namespace member_event

using MemberEvent =
    std::variant<member_event::Received, member_event::Loaded, member_event::TrainerStopped,
                 member_event::Progressed, member_event::GroupFormed, member_event::StateSynced,
                 member_event::StateCaughtUp, member_event::LeaveAsked,
                 member_event::CoordinatorLost, member_event::CoordinatorGivenUp>;

namespace member_effect {
struct Send {
  Message message;
};
/// Hand the view to the trainer.
struct RunView {
  View view;
};
/// Abort the group of this view, or its forming, from outside. The trainer then reports
/// TrainerStopped.
struct AbortGroup {
  ViewId view{};
};
/// Ask the other members, inside the next reduction, to stop at the next step boundary.
struct AskForBoundary {
  ViewId view{};
  bool stays = false;  ///< see Stop
};
/// The worker's membership is over: the trainer must return.
struct Leave {
  DismissReason reason = DismissReason::kJobDone;
  bool write_checkpoint = false;
  std::string detail;
  bool may_rejoin = false;       ///< the process may join again:
  std::optional<Former> former;  ///< as this member; nothing = as a new one
};
/// A higher incarnation has been accepted. It must be stored where the sentinel can read it after
/// this process has died (for WorkerDied), before any later effect is carried out.
struct Adopt {
  Incarnation incarnation{};
  std::uint64_t author = 0;
};
/// Close the present connection and try another coordinator of the list.
struct TryElsewhere {
  std::uint32_t skip = 0;  ///< as in NoQuorum
};
}  // namespace member_effect

using MemberEffect =
    std::variant<member_effect::Send, member_effect::RunView, member_effect::AbortGroup,
                 member_effect::AskForBoundary, member_effect::Leave, member_effect::Adopt,
                 member_effect::TryElsewhere>;

class Member {
 public:
  /// A new member; `welcome` is the answer to its first Hello.
  explicit Member(const Welcome& welcome);
  explicit Member(MemberId self) : Member(Welcome{self}) {}
  /// A member that joins again. It has no coordinator yet; the next Welcome is an event.
  explicit Member(Former former);

  /// Advances the machine by one event. Messages about other views than the present one are
  /// dropped, and so are messages that should be sent while there is no coordinator: the later
  /// Resume contains them. After Leave the machine returns no more effects.
  [[nodiscard]] std::vector<MemberEffect> handle(const MemberEvent& event);

  /// Fills in this member's id, job, incarnation and view, for every connection after the first.
  void introduce(Hello& hello) const;
  [[nodiscard]] MemberId id() const { return self_; }
  /// True if only a coordinator can decide how to continue: no view is being run.
  [[nodiscard]] bool needs_coordinator() const;
  /// True if the trainer has committed the job's last step; it waits for Dismiss.
  [[nodiscard]] bool is_finished() const { return last_ && last_->finished; }

 private:
  enum class Phase { kLoading, kWaiting, kRunning, kStopping, kGone };
  using Effects = std::vector<MemberEffect>;

  Effects on(const member_event::Received& event);
  Effects on(const member_event::Loaded& event);
  Effects on(const member_event::TrainerStopped& event);
  Effects on(const member_event::Progressed& event);
  Effects on(const member_event::GroupFormed& event);
  Effects on(const member_event::StateSynced& event);
  Effects on(const member_event::StateCaughtUp& event);
  Effects on(const member_event::LeaveAsked& event);
  Effects on(const member_event::CoordinatorLost& event);
  Effects on(const member_event::CoordinatorGivenUp& event);

  Effects obey(const Message& message);
  Effects accept(const Welcome& welcome);
  Effects turn_away(const Refused& refused);
  Effects stop(const Stop& stop);
  Effects start(const View& view);
  Effects change(const ViewDelta& delta);
  Effects dismiss(const Dismiss& dismiss);
  Effects leave(DismissReason reason, std::string detail);
  [[nodiscard]] Effects say(Message message) const;
  [[nodiscard]] bool may_accept(const Welcome& welcome) const;
  [[nodiscard]] Resume resume() const;
  [[nodiscard]] Former former() const;
  [[nodiscard]] bool in_view(ViewId view) const;
  [[nodiscard]] bool has_trained_state() const;
  void check_invariants() const;

  MemberId self_;
  Phase phase_ = Phase::kLoading;
  Step committed_{};
  std::uint64_t state_bytes_ = 0;
  float microbatch_ms_ = 0;
  std::optional<Former> former_;  // until this member runs a view again
  std::optional<View> view_;      // the newest view that it ran
  bool is_active_ = false;        // it has committed a step of that view
  bool has_caught_up_ = false;    // it observed that view and holds the state now
  std::optional<Stopped> last_;   // in kWaiting: the report about that view
  MicrobatchSet held_before_;     // microbatches whose sums it held when it entered that view
  std::optional<std::string> leave_reason_;

  // The coordinator that the member obeys: at most one per incarnation, and never an older one.
  Incarnation incarnation_;
  std::uint64_t author_;
  std::uint64_t job_;
  bool has_quorum_;
  bool is_connected_ = true;
  bool is_given_up_ = false;
};

}  // namespace mayfly::elastic
