#pragma once

// What happens to the coordinator, and what it wants done: the events that elastic/core/coordinator
// takes and the effects that it returns. An adapter carries out effects in their order.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/time.hpp"
#include "elastic/core/messages.hpp"
#include "elastic/core/view.hpp"
#include "elastic/core/view_log.hpp"

namespace mayfly::elastic {

namespace coordinator_event {
/// A worker passed the handshake's proof. The machine answers with Welcome (choosing the id) or
/// Refused.
struct WorkerConnected {
  std::uint64_t connection = 0;  ///< the adapter's name for the connection until a MemberId exists
  Hello hello;
};
struct Received {
  MemberId member{};
  Message message;
};
/// End of file, reset, or a malformed message on the worker's control connection.
struct ConnectionLost {
  MemberId member{};
  std::string detail;
};
/// The sentinel says that the worker's process is dead, or that it hangs, or its own connection
/// broke with the worker's.
struct SentinelReport {
  MemberId member{};
  std::string detail;
  bool is_dead = false;       ///< as in WorkerDied
  Incarnation incarnation{};  ///< as in WorkerDied
  std::uint64_t author = 0;   ///< as in WorkerDied
};
/// The sentinel is heard from.
struct SentinelBeat {
  MemberId member{};
  std::optional<WorkerPosition> position = {};  ///< of the worker
  bool worker_stopped = false;                  ///< it lives, the worker's process stands still
};
/// The host of a silent member has acknowledged bytes that were sent to it: the machine and the way
/// to it are there, so its processes are only slow to run.
struct HostAnswers {
  MemberId member{};
};
/// Operator: drain that member at the next boundary.
struct DrainAsked {
  MemberId member{};
  std::string reason;
};
struct PauseAsked {
  bool pause = true;
};
/// Stop the whole job at the next boundary, with a checkpoint.
struct StopAsked {
  std::string reason;
};
/// End the job now as failed (a worker reported non-finite loss, for example).
struct FailAsked {
  std::string reason;
};
/// Time passes; sent every few milliseconds.
struct Tick {};
}  // namespace coordinator_event

using CoordinatorEvent =
    std::variant<coordinator_event::WorkerConnected, coordinator_event::Received,
                 coordinator_event::ConnectionLost, coordinator_event::SentinelReport,
                 coordinator_event::SentinelBeat, coordinator_event::HostAnswers,
                 coordinator_event::DrainAsked, coordinator_event::PauseAsked,
                 coordinator_event::StopAsked, coordinator_event::FailAsked,
                 coordinator_event::Tick>;

/// What the coordinator's job does.
enum class JobPhase : std::uint8_t {
  kStandby,   ///< this coordinator has not heard of the job that it is to take over
  kResuming,  ///< members of the last view are expected back
  kWaiting,   ///< there are too few members for a view, or no majority of the last one
  kRunning,
  kStopping,  ///< the members of the view stop, so that the next one can be made
  kPaused,
  kEnded
};
/// Its name in records and messages: "running".
[[nodiscard]] const char* name_of(JobPhase phase);

/// Why a view ends. The last three never stand in a record.
enum class ChangeCause : std::uint8_t {
  kLost,         ///< a member is gone
  kGroupFailed,  ///< the members' group broke, or their states or results differ
  kCorrupted,    ///< and members were expelled because theirs were wrong
  kJoin,
  kPromote,  ///< observers get work
  kLeave,
  kRebalance,  ///< microbatches are distributed anew
  kStop,
  kPause,
  kFinish  ///< a member has done the last step
};
/// Its name in records and messages: "group_failed".
[[nodiscard]] const char* name_of(ChangeCause cause);

/// How one unplanned or planned change of view went; instants of the coordinator's clock.
struct Recovery {
  ChangeCause cause = ChangeCause::kLost;
  std::vector<MemberId> members;  ///< those that were lost, joined or left
  ViewId old_view{};
  ViewId new_view{};
  Step committed{};                       ///< of the new view
  std::uint32_t redone_microbatches = 0;  ///< computed again because their holder was lost
  Instant detected;                       ///< the event that caused it
  Instant told;                           ///< Stop sent to everybody
  Instant stopped;  ///< last member reported Stopped; the new view is published
  Instant formed;   ///< last member reported Formed
  Instant synced;   ///< last member reported Synced
  Instant step;     ///< first commit of the new view
  /// What happened to the first of the members ("silent for more than 300 ms", "hangs: rank 1
  /// ..."), or what the first member to leave a broken group said.
  std::string detail = {};
};

/// How a worker came into a job that was running; instants of the coordinator's clock.
struct Join {
  MemberId member{};
  Step admitted_after{};        ///< the last step before it took part
  Step started_after{};         ///< the last step before it had work
  std::uint32_t snapshots = 0;  ///< how often it began to take the state; 0 = while all waited
  Instant connected;
  Instant ready;      ///< it has loaded everything
  Instant admitted;   ///< a view with it is published
  Instant caught_up;  ///< it holds the state
  Instant promoted;   ///< a view in which it has work is published
  Instant step;       ///< the first commit with its work
};

namespace coordinator_effect {
/// Answers WorkerConnected: this connection is that member from now on. If the member has another
/// one, that one is dropped without a word (no ConnectionLost).
struct Accept {
  std::uint64_t connection = 0;
  MemberId member{};
};
/// Answers WorkerConnected: send Refused and close.
struct Refuse {
  std::uint64_t connection = 0;
  std::string reason;
  Refusal refusal = Refusal::kFinal;
};
/// Add this record to the view log before any later effect is carried out; `durable`: it must also
/// be on the disk. A coordinator without a log ignores it.
struct Append {
  LogRecord record;
  bool durable = false;
};
struct Send {
  MemberId member{};
  Message message;
};
/// The same message to several: to be encoded once.
struct SendToAll {
  std::vector<MemberId> members;
  Message message;
};
/// Nothing has been heard of the member for a while: send it something that its machine must
/// acknowledge, and say HostAnswers when it does.
struct Probe {
  MemberId member{};
};
/// Close the member's connection after what was sent to it; also fences its sentinel.
struct Disconnect {
  MemberId member{};
};
/// A fact for events.jsonl. `kind` is one of: of one member, connected, joined (in a view), lost,
/// left (drained), straggler (asked to leave), evicted, corrupted (evicted, its state or results
/// were wrong), stalled (stands still while others wait), disconnected (after it was dismissed),
/// drain_refused, leave_deferred, store_full, returned (it has outlived its connection),
/// joins_again (evicted, under the same id), caught_up (it observed, and has the state); of the
/// job, view, rebalance, waiting, paused, resumed, restarted (every holder of the newest state was
/// lost), incarnation, in_charge (again, or for the first time), no_quorum.
struct Note {
  std::string kind;
  std::optional<MemberId> member;
  std::string detail;
};
/// Published view, for the run directory and status.
struct ViewPublished {
  View view;
};
/// The view that a coordinator that was started again, or a standby, goes on with. The one before
/// may have come to tell the members of it but not the run directory.
struct ViewTakenOver {
  View view;
};
struct RecoveryDone {
  Recovery recovery;
};
struct JoinDone {
  Join join;
};
/// An opaque report of a member, for the engine.
struct ReportReceived {
  MemberId member{};
  Bytes payload;
  Instant happened;  ///< as the member says, by this coordinator's clock
};
struct JobEnded {
  Outcome outcome = Outcome::kDone;
  std::string detail;
};
}  // namespace coordinator_effect

using CoordinatorEffect =
    std::variant<coordinator_effect::Accept, coordinator_effect::Refuse, coordinator_effect::Append,
                 coordinator_effect::Send, coordinator_effect::SendToAll, coordinator_effect::Probe,
                 coordinator_effect::Disconnect, coordinator_effect::Note,
                 coordinator_effect::ViewPublished, coordinator_effect::ViewTakenOver,
                 coordinator_effect::RecoveryDone, coordinator_effect::JoinDone,
                 coordinator_effect::ReportReceived, coordinator_effect::JobEnded>;

/// The effects of one event, in the order in which they must be carried out. A machine that is
/// handed an outbox can say something to members, to the log and to the run directory; others only
/// answer.
class Outbox {
 public:
  void add(CoordinatorEffect effect) { effects_.push_back(std::move(effect)); }
  void send(MemberId member, Message message) {
    add(coordinator_effect::Send{member, std::move(message)});
  }
  /// The same to several, or to nobody.
  void send_to_all(std::vector<MemberId> members, Message message) {
    if (members.size() == 1) {
      send(members.front(), std::move(message));
    } else if (!members.empty()) {
      add(coordinator_effect::SendToAll{std::move(members), std::move(message)});
    }
  }
  /// Into the view log; `durable`: on the disk before any later effect.
  void append(LogRecord record, bool durable = false) {
    add(coordinator_effect::Append{std::move(record), durable});
  }
  /// A fact for the run directory; `kind` is one of those at coordinator_effect::Note.
  void note(std::string kind, std::optional<MemberId> member, std::string detail) {
    add(coordinator_effect::Note{std::move(kind), member, std::move(detail)});
  }

  [[nodiscard]] bool empty() const { return effects_.empty(); }
  /// Everything so far; the outbox is empty afterwards.
  [[nodiscard]] std::vector<CoordinatorEffect> take() { return std::exchange(effects_, {}); }

 private:
  std::vector<CoordinatorEffect> effects_;
};

}  // namespace mayfly::elastic
