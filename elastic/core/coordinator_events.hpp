#pragma once

// The events that elastic/core/coordinator takes and the effects that it returns. An adapter
// (elastic/net/coordinator_server, or the simulator) carries out effects in their order. Values
// without behaviour; any thread.

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
/// A worker has proved that it knows the token. The machine answers with Accept (it chooses the id)
/// or Refuse.
struct WorkerConnected {
  std::uint64_t connection = 0;  ///< the adapter's number of the connection, until there is an id
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
/// The sentinel reports that the worker's process is dead, or that it hangs, or the sentinel's own
/// connection broke together with the worker's.
struct SentinelReport {
  MemberId member{};
  std::string detail;
  bool is_dead = false;       ///< as in WorkerDied
  Incarnation incarnation{};  ///< as in WorkerDied
  std::uint64_t author = 0;   ///< as in WorkerDied
};
/// A heartbeat of the member's sentinel.
struct SentinelBeat {
  MemberId member{};
  std::optional<WorkerPosition> position = {};  ///< of the worker
  bool worker_stopped = false;                  ///< the worker's process is stopped (SIGSTOP)
};
/// The host of a silent member has acknowledged bytes that were sent to it: the machine and the
/// network work, so the member's processes only lack processor time.
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

/// The phase of the coordinator's job.
enum class JobPhase : std::uint8_t {
  kStandby,   ///< this coordinator does not know the job yet that it is to take over
  kResuming,  ///< members of the last view are expected back
  kWaiting,   ///< there are too few members for a view, or no majority of the last one
  kRunning,
  kStopping,  ///< the members of the view stop, so that the next one can be made
  kPaused,
  kEnded
};
/// Its name in records and messages: "running".
[[nodiscard]] const char* name_of(JobPhase phase);

/// Why a view ends. The last three are never recorded.
enum class ChangeCause : std::uint8_t {
  kLost,         ///< a member is lost
  kGroupFailed,  ///< the members' group broke, or their states or results differ
  kCorrupted,    ///< members were evicted because their state or results were wrong
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

/// One change of view, planned or not, with instants of the coordinator's clock.
struct Recovery {
  ChangeCause cause = ChangeCause::kLost;
  std::vector<MemberId> members;  ///< the members that were lost, joined or left
  ViewId old_view{};
  ViewId new_view{};
  Step committed{};                       ///< the step after which the new view resumes
  std::uint32_t redone_microbatches = 0;  ///< computed again because their holder was lost
  Instant detected;                       ///< the event that caused the change
  Instant told;                           ///< Stop was sent to every member
  Instant stopped;  ///< last member reported Stopped; the new view is published
  Instant formed;   ///< last member reported Formed
  Instant synced;   ///< last member reported Synced
  Instant step;     ///< first commit of the new view
  /// What happened to the first of `members` ("silent for more than 300 ms", "hangs: rank 1 ..."),
  /// or the report of the first member that left a broken group.
  std::string detail = {};
};

/// One worker that joined a running job, with instants of the coordinator's clock.
struct Join {
  MemberId member{};
  Step admitted_after{};        ///< the last step before it took part
  Step started_after{};         ///< the last step before it had work
  std::uint32_t snapshots = 0;  ///< copies that it began to receive as an observer; 0 = it was none
  Instant connected;
  Instant ready;      ///< it has loaded everything
  Instant admitted;   ///< a view with it is published
  Instant caught_up;  ///< it holds the state
  Instant promoted;   ///< a view in which it has work is published
  Instant step;       ///< the first commit with its work
};

namespace coordinator_effect {
/// Answers WorkerConnected: this connection is that of `member` from now on. If the member has
/// another connection, that one is closed without an event ConnectionLost.
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
/// The same message to several members; the adapter should encode it only once.
struct SendToAll {
  std::vector<MemberId> members;
  Message message;
};
/// The member has been silent for a while: send it bytes that its machine must acknowledge, and
/// report HostAnswers when it does.
struct Probe {
  MemberId member{};
};
/// Close the member's connection after what was sent to it; also fences its sentinel.
struct Disconnect {
  MemberId member{};
};
/// A fact for events.jsonl. Kinds about one member: connected, joined (in a view), lost, left
/// (drained), straggler (asked to leave), evicted, corrupted (evicted because its state or results
/// were wrong), stalled (no progress while others wait), disconnected (after it was dismissed),
/// drain_refused, leave_deferred, store_full, returned (it has outlived its connection),
/// joins_again (after an eviction, under the same id), caught_up (an observer has received the
/// state). Kinds about the job: view, rebalance, waiting, paused, resumed, restarted (every holder
/// of the newest state was lost), incarnation, in_charge (again, or for the first time), no_quorum.
struct Note {
  std::string kind;
  std::optional<MemberId> member;
  std::string detail;
};
/// A new view was published; for the run directory and status.
struct ViewPublished {
  View view;
};
/// A restarted coordinator, or a standby, continues with this view. Its predecessor may have
/// announced the view to the members without recording it in the run directory.
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
  Instant happened;  ///< when, according to the member, by this coordinator's clock
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

/// The effects of one event, in the order in which they must be carried out. Machines that are
/// given an outbox add effects themselves; all others only return values.
class Outbox {
 public:
  void add(CoordinatorEffect effect) { effects_.push_back(std::move(effect)); }
  void send(MemberId member, Message message) {
    add(coordinator_effect::Send{member, std::move(message)});
  }
  /// The same message to several members, or to none.
  void send_to_all(std::vector<MemberId> members, Message message) {
    if (members.size() == 1) {
      send(members.front(), std::move(message));
    } else if (!members.empty()) {
      add(coordinator_effect::SendToAll{std::move(members), std::move(message)});
    }
  }
  /// A record for the view log; `durable`: on the disk before any later effect.
  void append(LogRecord record, bool durable = false) {
    add(coordinator_effect::Append{std::move(record), durable});
  }
  /// A fact for the run directory; `kind` is one of those at coordinator_effect::Note.
  void note(std::string kind, std::optional<MemberId> member, std::string detail) {
    add(coordinator_effect::Note{std::move(kind), member, std::move(detail)});
  }

  [[nodiscard]] bool empty() const { return effects_.empty(); }
  /// All effects so far; the outbox is empty afterwards.
  [[nodiscard]] std::vector<CoordinatorEffect> take() { return std::exchange(effects_, {}); }

 private:
  std::vector<CoordinatorEffect> effects_;
};

}  // namespace mayfly::elastic
