#pragma once

// The member's side of membership, as a pure state machine: it takes one event and returns the
// effects that the adapter (engine/worker) must carry out, in order. It never blocks and does no
// I/O.
//
// Life of a member:
//
//   loading --ready--> waiting --NewView--> running --Stop / group broke--> stopping --trainer
//   stopped--> waiting --NewView--> running ... --Dismiss--> gone
//
// The trainer (the thread that computes) runs one view at a time: RunView starts it, TrainerStopped
// ends it, whatever the cause. A view is announced only after this member has reported Stopped for
// the one before, so at most one group exists at any time.

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "elastic/core/messages.hpp"
#include "elastic/core/view.hpp"

namespace mayfly::elastic {

namespace member_event {
/// A message of the coordinator: Stop, NewView or Dismiss (others are ignored here).
struct Received {
  Message message;
};
/// The worker has loaded everything; `committed` is the state it holds.
struct Loaded {
  Step committed{};
  std::uint64_t state_bytes = 0;  ///< see Ready
};
/// The trainer left the view's group: told to, at an agreed boundary, after the last step, or
/// because the group broke.
struct TrainerStopped {
  ViewId view{};
  Step committed{};
  MicrobatchSet held;
  bool finished = false;
  bool failed = false;
  std::optional<MemberId> culprit;
  std::string detail;
  Step observed{};  ///< see Stopped
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
/// The control connection is gone. The member goes on with its view while its group holds; when it
/// would need the coordinator, its part is over.
struct CoordinatorLost {};
}  // namespace member_event

using MemberEvent =
    std::variant<member_event::Received, member_event::Loaded, member_event::TrainerStopped,
                 member_event::GroupFormed, member_event::StateSynced, member_event::StateCaughtUp,
                 member_event::LeaveAsked, member_event::CoordinatorLost>;

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
};
/// The worker's part is over: the trainer must return.
struct Leave {
  DismissReason reason = DismissReason::kJobDone;
  bool write_checkpoint = false;
  std::string detail;
};
}  // namespace member_effect

using MemberEffect =
    std::variant<member_effect::Send, member_effect::RunView, member_effect::AbortGroup,
                 member_effect::AskForBoundary, member_effect::Leave>;

class Member {
 public:
  /// `self` is the id that the coordinator's Welcome gave.
  explicit Member(MemberId self) : self_(self) {}

  /// Advances the machine by one event. Messages about other views than the present one are
  /// dropped. After Leave it stays gone and returns nothing.
  [[nodiscard]] std::vector<MemberEffect> handle(const MemberEvent& event);

 private:
  enum class Phase { kLoading, kWaiting, kRunning, kStopping, kGone };
  using Effects = std::vector<MemberEffect>;

  Effects on(const member_event::Received& event);
  Effects on(const member_event::Loaded& event);
  Effects on(const member_event::TrainerStopped& event);
  Effects on(const member_event::GroupFormed& event);
  Effects on(const member_event::StateSynced& event);
  Effects on(const member_event::StateCaughtUp& event);
  Effects on(const member_event::LeaveAsked& event);
  Effects on(const member_event::CoordinatorLost& event);

  Effects stop(const Stop& stop);
  Effects start(const View& view);
  Effects dismiss(const Dismiss& dismiss);
  Effects leave(DismissReason reason, bool write_checkpoint, std::string detail);
  [[nodiscard]] bool in_view(ViewId view) const;

  MemberId self_;
  Phase phase_ = Phase::kLoading;
  ViewId view_{};  // the last one that was run
  bool leave_asked_ = false;
  bool coordinator_lost_ = false;
};

}  // namespace mayfly::elastic
