#pragma once

// The control messages and their encoding; docs/protocol.md has the order and the rules. A
// connection carries frames of one encoded Message each. Bounds: kMessageBytesMax for a frame;
// every list and string has its own bound in messages.cpp. decode() never trusts its input and
// accepts exactly what encode() can produce. Pure functions and values; any thread.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "elastic/core/view.hpp"

namespace mayfly::elastic {

inline constexpr std::uint32_t kProtocolVersion = 15;
inline constexpr std::size_t kMessageBytesMax = 12u << 20;

/// The process that opens a connection.
enum class Role : std::uint8_t {
  kWorker = 0,
  kSentinel = 1,
  kOperator = 2,
  kTransfer = 3,  ///< transfers checkpoints; the messages after Welcome are not of this protocol
};

// The position of a worker: what its trainer does, for which step and part of it. Its sentinel
// reads it from outside and sends it with heartbeats. So the coordinator can distinguish a worker
// that hangs from one that computes, and can report in which activity it hangs.

/// An activity of a worker. In kIdle, kForm, kSync and kExchange it waits for others.
enum class Activity : std::uint8_t {
  kIdle = 0,    ///< waits for an order
  kForm,        ///< forms its group
  kSync,        ///< brings its state to that of the view
  kExchange,    ///< waits for an all-reduce
  kLoad,        ///< waits for its data
  kCompute,     ///< forward and backward
  kCommit,      ///< applies an update
  kEvaluate,    ///< computes on test images
  kCheckpoint,  ///< writes its state, or waits for the disk
};
inline constexpr std::size_t kActivities = 9;

/// No microbatch or no bucket.
inline constexpr std::uint32_t kNoPart = UINT32_MAX;

struct WorkerPosition {
  Activity activity = Activity::kIdle;
  Step step{};                         ///< the step that it works on; 0 = none
  std::uint32_t microbatch = kNoPart;  ///< kLoad, kCompute: the present microbatch
  std::uint32_t bucket = kNoPart;      ///< kCompute: the next bucket; kExchange: the awaited one
  std::uint64_t moves = 0;             ///< counts everything that it completes
  friend bool operator==(const WorkerPosition&, const WorkerPosition&) = default;
};

/// True if a worker in this activity waits for other members; it is never blamed for a stall.
[[nodiscard]] bool waits_for_others(Activity activity);
/// "compute", "exchange", ...; for records.
[[nodiscard]] const char* name_of(Activity activity);
/// A part of a sentence about the worker: "computes microbatch 5 of step 100, bucket 2".
[[nodiscard]] std::string describe(const WorkerPosition& position);

/// The subject of a disagreement between members.
enum class Dispute : std::uint8_t {
  kNone,
  kState,       ///< the state that a step starts from
  kMicrobatch,  ///< the gradient of one microbatch, computed by several members (an audit)
};

// --- handshake: Challenge (coordinator), Hello (client), then Welcome or Refused (coordinator)

struct Challenge {
  Bytes nonce;  ///< 32 random bytes
  friend bool operator==(const Challenge&, const Challenge&) = default;
};
struct Hello {
  std::uint32_t protocol = kProtocolVersion;
  Role role = Role::kWorker;
  Bytes nonce;        ///< 32 random bytes of the client; no two sessions have the same proof
  Bytes proof;        ///< HMAC-SHA256(token, challenge nonce + own nonce + role)
  MemberId member{};  ///< kSentinel: its worker's id; kWorker: its id in this job, 0 if it is new
  std::string host;   ///< readable name of the host
  std::uint32_t pid = 0;
  std::string address;  ///< kWorker: address of its gradient transport
  std::string server;   ///< kWorker: the provider's name for its server; empty = unknown
  /// kWorker: everything that must be equal on all workers of the job (model, data set, seed,
  /// instruction set, ...), as (name, value). The first difference is the reason of a refusal.
  std::vector<std::pair<std::string, std::string>> fingerprint;
  // For a kWorker with an id, whose coordinator was lost; filled in by Member::introduce():
  /// The job that it is a member of; also from a kSentinel, and from a kTransfer of a member.
  std::uint64_t job = 0;
  Incarnation incarnation{};  ///< the highest incarnation that it has accepted,
  std::uint64_t author = 0;   ///< and the coordinator process of that incarnation
  ViewId view{};              ///< the newest view that it has entered
  bool joins_again = false;   ///< it was evicted, and holds no part of a view under this id
  std::uint32_t cores = 0;    ///< kWorker: number of cores that it may use; 0 = unknown
  friend bool operator==(const Hello&, const Hello&) = default;
};
/// Bounds on a fingerprint, in a Hello and in the view log.
inline constexpr std::size_t kFingerprintPairsMax = 256;
inline constexpr std::size_t kFingerprintNameBytesMax = 128;
inline constexpr std::size_t kFingerprintValueBytesMax = 1024;
/// Checks a fingerprint that was given from outside: kInvalidInput, with one line, if it exceeds
/// these bounds or contains a name twice.
[[nodiscard]] Result<void> check_fingerprint(
    const std::vector<std::pair<std::string, std::string>>& fingerprint);
/// To a worker: if it accepts, it is a member in this incarnation from now on. A member that had an
/// id before answers with Resume. Sent again on the same connection if the coordinator begins a
/// higher incarnation. For sentinels and operators only `member` has a meaning.
struct Welcome {
  MemberId member{};
  Incarnation incarnation{1};
  std::uint64_t author = 0;  ///< random id of the coordinator process
  std::uint64_t job = 0;     ///< random id of the job; 0: a standby that does not know it yet
  bool resume = false;       ///< the member must answer with Resume
  bool quorum = false;       ///< the job has a quorum: an evicted member joins again under its id
  bool underway = false;     ///< members are training: a joining worker receives their state
  friend bool operator==(const Welcome&, const Welcome&) = default;
};
enum class Refusal : std::uint8_t {
  kFinal = 0,     ///< trying again will not help: wrong token, other model, job over
  kEvicted = 1,   ///< the job continues without this member; the worker may join as a new one
  kElsewhere = 2  ///< this coordinator is not in charge; another one of the list may be
};
struct Refused {
  std::string reason;
  Refusal refusal = Refusal::kFinal;
  friend bool operator==(const Refused&, const Refused&) = default;
};

// --- member to coordinator

/// The worker has loaded everything and can be admitted.
struct Ready {
  Step committed{};               ///< the step of the state that it holds: 0, or a checkpoint's
  std::uint64_t state_bytes = 0;  ///< size of a state as it is sent to another member
  friend bool operator==(const Ready&, const Ready&) = default;
};
/// The member has left the view's group and waits for the next view.
struct Stopped {
  ViewId view{};
  Step committed{};                 ///< its own highest committed step
  MicrobatchSet held;               ///< microbatches whose sums it keeps for step committed + 1
  bool finished = false;            ///< it has committed the job's last step
  bool failed = false;              ///< its group broke; it was not told to stop
  std::optional<MemberId> culprit;  ///< if it failed: the member that it blames, if it knows one
  std::string detail;
  Step observed{};  ///< from an observer without the state: it has the sums of all steps up to this
  /// False: it had not yet given its whole part of the view's first step to the group, so no member
  /// can have committed a step of this view.
  bool contributed = true;
  Dispute dispute = Dispute::kNone;        ///< not kNone: it stopped because members disagree
  std::vector<std::uint64_t> hashes = {};  ///< then: of its state's parts, or of the microbatch
  bool contradicts_itself = false;         ///< then: see Witness
  bool unanswered = false;                 ///< packets to the culprit's host were not acknowledged
  friend bool operator==(const Stopped&, const Stopped&) = default;
};
/// The phase of a member that has outlived its coordinator.
enum class ResumePhase : std::uint8_t { kLoading = 0, kReady = 1, kRunning = 2, kStopped = 3 };
/// Answers a Welcome that asks for it, with everything that a coordinator must know to continue
/// with this member. It is also a vote: from now on the member obeys no lower incarnation, and no
/// other coordinator in this one.
struct Resume {
  Incarnation incarnation{};  ///< that of the Welcome
  ResumePhase phase = ResumePhase::kLoading;
  Step committed{};  ///< its highest committed step, as far as its control thread knows
  std::uint64_t state_bytes = 0;  ///< as in Ready
  bool is_active = false;         ///< it has committed a step of `view`
  bool has_caught_up = false;     ///< it is an observer of `view` and has said CaughtUp
  /// The newest view that it has entered. With kLoading and kReady it entered it before it was
  /// evicted, and holds nothing of it.
  std::optional<View> view = {};
  /// Its report when it left `view`: always with kStopped, never with kRunning.
  std::optional<Stopped> last = {};
  MicrobatchSet held_before;  ///< kRunning: whose sums it held when it entered `view`
  float microbatch_ms = 0;    ///< as in Progress
  bool is_leaving = false;    ///< it has asked to leave
  std::string leave_reason;
  friend bool operator==(const Resume&, const Resume&) = default;
};
/// Coordinator to member: the first `count` reports of this connection are on record and need not
/// be sent again.
struct ReportsTaken {
  std::uint64_t count = 0;
  friend bool operator==(const ReportsTaken&, const ReportsTaken&) = default;
};
/// Answers Dismiss: the member has left and will obey no other coordinator under this id. Not sent
/// by a member that may join again under its id.
struct Left {
  Incarnation incarnation{};  ///< the highest incarnation that it has accepted
  friend bool operator==(const Left&, const Left&) = default;
};
/// The member's group is formed.
struct Formed {
  ViewId view{};
  friend bool operator==(const Formed&, const Formed&) = default;
};
/// The member holds the view's state and starts computing.
struct Synced {
  ViewId view{};
  friend bool operator==(const Synced&, const Synced&) = default;
};
/// The stages through which a worker's microbatches go. Times are those of one microbatch on one
/// thread, means over some seconds.
struct Stages {
  float fetch_ms = 0;        ///< reading the images from files
  float prep_ms = 0;         ///< processor time of reading, decoding and augmenting
  float compute_ms = 0;      ///< wall time from the prepared microbatch until it is in the sums
  float compute_cpu_ms = 0;  ///< processor time of `compute_ms`
  std::uint32_t bytes = 0;   ///< bytes of its images that were read from storage
  std::uint16_t load_threads = 0;
  std::uint16_t compute_threads = 0;  ///< 0 = nothing was loaded, and the other fields mean nothing
  std::uint32_t ahead = 0;            ///< most microbatches that are prepared ahead
  bool yields = false;                ///< loading threads have a low priority
  friend bool operator==(const Stages&, const Stages&) = default;
};
/// The resources that a worker's process has used so far.
struct ProcessUse {
  std::uint64_t cpu_ms = 0;      ///< processor time of all its threads
  std::uint32_t memory_mib = 0;  ///< peak resident memory; 0 = unknown
  friend bool operator==(const ProcessUse&, const ProcessUse&) = default;
};
/// The member has committed a step. Sent at the first commit of a view, then at most every 100 ms.
struct Progress {
  ViewId view{};
  Step committed{};
  /// Mean wall time of a microbatch on one thread since the last Progress, divided by the number of
  /// threads; 0 = none was computed.
  float microbatch_ms = 0;
  std::uint32_t microbatches = 0;  ///< computed since the last Progress
  Stages stages{};
  ProcessUse use{};
  friend bool operator==(const Progress&, const Progress&) = default;
};
/// The observer holds the state after `committed`, the last step of its view so far, and can be
/// given work.
struct CaughtUp {
  ViewId view{};
  Step committed{};
  friend bool operator==(const CaughtUp&, const CaughtUp&) = default;
};
/// The sender is alive. From members, sentinels, and coordinators of jobs with standbys.
struct Heartbeat {
  /// From a sentinel: the position of its worker's trainer.
  std::optional<WorkerPosition> position;
  bool worker_stopped = false;  ///< the worker's process is stopped (SIGSTOP, a debugger)
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};
/// The member wants to leave at the next boundary (SIGTERM, a notice).
struct LeaveRequest {
  std::string reason;
  friend bool operator==(const LeaveRequest&, const LeaveRequest&) = default;
};
/// Opaque to elastic: step records, messages about checkpoints, evaluation results; for the
/// engine's run directory.
struct Report {
  Bytes payload;
  float age_ms = 0;  ///< time since the reported event: a report may have waited for a coordinator
  friend bool operator==(const Report&, const Report&) = default;
};
struct StoreSet {
  ViewId view{};
  std::string key;
  Bytes value;
  friend bool operator==(const StoreSet&, const StoreSet&) = default;
};
struct StoreGet {
  ViewId view{};
  std::string key;
  friend bool operator==(const StoreGet&, const StoreGet&) = default;
};

// --- sentinel to coordinator (besides Heartbeat)

/// The sentinel's worker has died, or takes part no longer.
struct WorkerDied {
  std::string detail;
  bool is_dead = false;       ///< its process has certainly ended
  Incarnation incarnation{};  ///< if dead: the highest incarnation that it had accepted,
  std::uint64_t author = 0;   ///< and its coordinator process: two may have the same number
  friend bool operator==(const WorkerDied&, const WorkerDied&) = default;
};

// --- coordinator to member

/// Leave the view's group: at once (a member was lost), or at the next step boundary that the
/// members agree on inside their reduction (a planned change).
struct Stop {
  ViewId view{};
  bool at_boundary = false;
  /// With at_boundary: this member is expected to be in the next view, which begins at once, and
  /// may compute meanwhile (work_at_boundary()).
  bool stays = false;
  friend bool operator==(const Stop&, const Stop&) = default;
};
struct NewView {
  View view;
  friend bool operator==(const NewView&, const NewView&) = default;
};
/// Like NewView, for a member that was sent the previous view.
struct NewViewDelta {
  ViewDelta delta;
  friend bool operator==(const NewViewDelta&, const NewViewDelta&) = default;
};
struct StoreValue {
  ViewId view{};
  std::string key;
  Bytes value;
  friend bool operator==(const StoreValue&, const StoreValue&) = default;
};
enum class DismissReason : std::uint8_t {
  kJobDone = 0,
  kJobStopped = 1,
  kDrained = 2,
  kEvicted = 3,
  kJobFailed = 4,
  kCorrupted = 5,   ///< evicted; nothing that it holds may be used again
  kUnreachable = 6  ///< evicted; it and another member could not exchange data
};
/// True if the job continues without the member although it had not asked to leave.
[[nodiscard]] constexpr bool is_eviction(DismissReason reason) {
  return reason == DismissReason::kEvicted || reason == DismissReason::kCorrupted ||
         reason == DismissReason::kUnreachable;
}
/// The end of this member's part. Answered by Left, unless it may join again under its id.
struct Dismiss {
  DismissReason reason = DismissReason::kJobDone;
  bool write_checkpoint = false;
  std::string detail;
  bool may_rejoin = false;  ///< the worker may join again, as a new member or with its id (Left)
  friend bool operator==(const Dismiss&, const Dismiss&) = default;
};
/// This coordinator cannot take charge, because too few members of the last view have connected to
/// it. The member keeps its id and tries another coordinator: in a list of n, the one that is
/// 1 + skip % (n - 1) places further on. All members that are sent away together get the same
/// `skip`; if every group always took the next coordinator, two groups could follow each other
/// round the list and never meet.
struct NoQuorum {
  std::string detail;
  std::uint32_t skip = 0;
  friend bool operator==(const NoQuorum&, const NoQuorum&) = default;
};

// --- operator

struct Command {
  std::string verb;  ///< status, scale, give-up, drain, pause, resume, stop
  std::string argument;
  friend bool operator==(const Command&, const Command&) = default;
};
struct CommandReply {
  bool ok = false;
  std::string text;  ///< JSON for status, a sentence otherwise
  friend bool operator==(const CommandReply&, const CommandReply&) = default;
};

/// Member to coordinator: the member cannot construct this view from its delta; answered by
/// NewView.
struct ViewWanted {
  ViewId view{};
  friend bool operator==(const ViewWanted&, const ViewWanted&) = default;
};

using Message =
    std::variant<Challenge, Hello, Welcome, Refused, Ready, Stopped, Formed, Synced, Progress,
                 Heartbeat, LeaveRequest, Report, StoreSet, StoreGet, WorkerDied, Stop, NewView,
                 StoreValue, Dismiss, Command, CommandReply, CaughtUp, Resume, Left, NoQuorum,
                 NewViewDelta, ViewWanted, ReportsTaken>;

/// Readable texts (reason, detail, host) are cut at their bound; any other field beyond its bound
/// is a defect of the caller (ENSURE).
[[nodiscard]] Bytes encode(const Message& message);
/// kCorrupt if the bytes are not exactly one message within all bounds.
[[nodiscard]] Result<Message> decode(ByteSpan bytes);
/// The message's name, for logs.
[[nodiscard]] const char* name_of(const Message& message);

/// True if a member may send this message after its handshake. The coordinator closes the
/// connection of a member that sends another one.
[[nodiscard]] bool is_from_worker(const Message& message);

}  // namespace mayfly::elastic
