#pragma once

// The control messages and their encoding. One connection carries frames of one encoded Message
// each. Bounds: kMessageBytesMax for a frame; every list and string has a bound of its own in
// messages.cpp. decode() never trusts its input and accepts exactly what encode() can produce.

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

/// Who opens a connection.
enum class Role : std::uint8_t {
  kWorker = 0,
  kSentinel = 1,
  kOperator = 2,
  kTransfer = 3,  ///< moves checkpoints; what follows Welcome is not of this protocol
};

// What a worker's trainer does, for which step, on which part of it. Its sentinel reads this from
// outside and puts it into heartbeats, so that a worker that hangs can be told from one that
// computes, and those that wait for it can be told what it hangs in.

/// What a worker does. In kIdle, kForm, kSync and kExchange it waits for others.
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
  Step step{};                         ///< that it works on; 0 = none
  std::uint32_t microbatch = kNoPart;  ///< kLoad, kCompute: which one
  std::uint32_t bucket = kNoPart;      ///< kCompute: that comes next; kExchange: that it waits for
  std::uint64_t moves = 0;             ///< grows with everything that it gets done
  friend bool operator==(const WorkerPosition&, const WorkerPosition&) = default;
};

/// It stands still because of others: never the culprit.
[[nodiscard]] bool waits_for_others(Activity activity);
/// "compute", "exchange", ...; for records.
[[nodiscard]] const char* name_of(Activity activity);
/// A part of a sentence about the worker: "computes microbatch 5 of step 100, bucket 2".
[[nodiscard]] std::string describe(const WorkerPosition& position);

/// What members disagree about.
enum class Dispute : std::uint8_t {
  kNone,
  kState,       ///< the state that a step starts from
  kMicrobatch,  ///< the gradient of one microbatch, computed by several members (an audit)
};

// --- handshake: Challenge (coordinator), Hello (the one who connects), Welcome or Refused

struct Challenge {
  Bytes nonce;  ///< 32 random bytes
  friend bool operator==(const Challenge&, const Challenge&) = default;
};
struct Hello {
  std::uint32_t protocol = kProtocolVersion;
  Role role = Role::kWorker;
  Bytes nonce;        ///< 32 random bytes of ours; keeps proofs of two sessions apart
  Bytes proof;        ///< HMAC-SHA256(token, challenge nonce + own nonce + role)
  MemberId member{};  ///< kSentinel: whose; kWorker: the id it has in this job, 0 if it is new
  std::string host;   ///< readable
  std::uint32_t pid = 0;
  std::string address;  ///< kWorker: of its gradient transport
  std::string server;   ///< kWorker: its provider's name for what it runs on; empty = none known
  /// kWorker: everything that must be equal on all workers of the job (model, data set, seed,
  /// instruction set, ...), as (name, value). The first difference is the reason of a refusal.
  std::vector<std::pair<std::string, std::string>> fingerprint;
  // kWorker with an id, whose coordinator was lost; Member::introduce() fills them in:
  std::uint64_t job = 0;      ///< the job it is a member of
  Incarnation incarnation{};  ///< the highest that it has accepted,
  std::uint64_t author = 0;   ///< and of which coordinator
  ViewId view{};              ///< the newest that it has entered
  bool joins_again = false;   ///< it was evicted, and holds no part of a view under this id
  std::uint32_t cores = 0;    ///< kWorker: that it may use; 0 = unknown
  friend bool operator==(const Hello&, const Hello&) = default;
};
/// Of a fingerprint: what a Hello has room for, and the view log for as much.
inline constexpr std::size_t kFingerprintPairsMax = 256;
inline constexpr std::size_t kFingerprintNameBytesMax = 128;
inline constexpr std::size_t kFingerprintValueBytesMax = 1024;
/// kInvalidInput, in one line, if one has more, or a name twice: for what comes from outside.
[[nodiscard]] Result<void> check_fingerprint(
    const std::vector<std::pair<std::string, std::string>>& fingerprint);
/// To a worker: a member of this incarnation from now on, if it accepts. A member that had an id
/// before answers Resume. Sent again on the same connection if the coordinator begins a higher
/// incarnation. To sentinels and operators only `member` means anything.
struct Welcome {
  MemberId member{};
  Incarnation incarnation{1};
  std::uint64_t author = 0;  ///< random name of the coordinator process
  std::uint64_t job = 0;     ///< random name of the job; 0: not known here yet (a standby)
  bool resume = false;       ///< the member is to answer Resume
  bool quorum = false;       ///< the job has one: an evicted member joins again under its id
  bool underway = false;     ///< there are members at work: who joins takes their state
  friend bool operator==(const Welcome&, const Welcome&) = default;
};
enum class Refusal : std::uint8_t {
  kFinal = 0,     ///< trying again will not help: wrong token, other model, job over
  kEvicted = 1,   ///< the job goes on without this member; the worker may join as a new one
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
  Step committed{};               ///< the state it holds: 0 or that of a checkpoint
  std::uint64_t state_bytes = 0;  ///< of a state as it is sent to another member
  friend bool operator==(const Ready&, const Ready&) = default;
};
/// The member has left the view's group and waits for the next view.
struct Stopped {
  ViewId view{};
  Step committed{};                 ///< its own highest committed step
  MicrobatchSet held;               ///< integer sums it keeps for step committed + 1
  bool finished = false;            ///< it has committed the job's last step
  bool failed = false;              ///< its group broke; not told to stop
  std::optional<MemberId> culprit;  ///< whom it blames, if it failed and knows
  std::string detail;
  Step observed{};  ///< of an observer without the state: it has the sums of all steps up to this
  /// False: it had not yet given its whole part of the view's first step to the group, so nobody
  /// can have committed a step of this view.
  bool contributed = true;
  Dispute dispute = Dispute::kNone;  ///< why it stopped, if members found that they disagree
  std::vector<std::uint64_t> hashes =
      {};                           ///< then: of the parts of its state, or of the microbatch
  bool contradicts_itself = false;  ///< then: it contradicts itself, see Witness
  bool unanswered = false;          ///< the culprit's host left its packets unanswered
  friend bool operator==(const Stopped&, const Stopped&) = default;
};
/// What a member that outlived its coordinator is doing.
enum class ResumePhase : std::uint8_t { kLoading = 0, kReady = 1, kRunning = 2, kStopped = 3 };
/// Answers a Welcome that asks for it, and says everything a coordinator must know to go on with
/// this member. It is also a vote: the member obeys no lower incarnation from now on, and no other
/// coordinator in this one.
struct Resume {
  Incarnation incarnation{};  ///< of the Welcome
  ResumePhase phase = ResumePhase::kLoading;
  Step committed{};               ///< its own highest, as far as its control thread knows
  std::uint64_t state_bytes = 0;  ///< as in Ready
  bool is_active = false;         ///< it has committed a step of `view`
  bool has_caught_up = false;     ///< it is an observer of `view` and has said CaughtUp
  /// The newest that it has entered. With kLoading and kReady it did so before it was evicted, and
  /// holds nothing of it.
  std::optional<View> view = {};
  /// Its report when it left `view`: always with kStopped, never with kRunning.
  std::optional<Stopped> last = {};
  MicrobatchSet held_before;  ///< kRunning: the sums it kept when it entered `view`
  float microbatch_ms = 0;    ///< as in Progress
  bool is_leaving = false;    ///< it has asked to leave
  std::string leave_reason;
  friend bool operator==(const Resume&, const Resume&) = default;
};
/// So many reports of this connection are on record: they need not be sent again.
struct ReportsTaken {
  std::uint64_t count = 0;
  friend bool operator==(const ReportsTaken&, const ReportsTaken&) = default;
};
/// Answers Dismiss: the member is gone and will follow no other coordinator under this id. Not said
/// by one that may join again under it.
struct Left {
  Incarnation incarnation{};  ///< the highest that it has accepted
  friend bool operator==(const Left&, const Left&) = default;
};
/// The member's group stands.
struct Formed {
  ViewId view{};
  friend bool operator==(const Formed&, const Formed&) = default;
};
/// The member holds the view's state and starts computing.
struct Synced {
  ViewId view{};
  friend bool operator==(const Synced&, const Synced&) = default;
};
/// The stages through which a worker's microbatches go: what each takes for one on a thread, in the
/// mean of some seconds, and how many threads there are.
struct Stages {
  float fetch_ms = 0;        ///< reading its images from files
  float prep_ms = 0;         ///< processor time of loading it
  float compute_ms = 0;      ///< from when it is prepared until it is in the sums
  float compute_cpu_ms = 0;  ///< processor time of that
  std::uint32_t bytes = 0;   ///< of its images that came from where they are stored
  std::uint16_t load_threads = 0;
  std::uint16_t compute_threads = 0;  ///< 0 = nothing was loaded, and the rest means nothing
  std::uint32_t ahead = 0;            ///< microbatches that are prepared ahead at most
  bool yields = false;                ///< loading threads have a low priority
  friend bool operator==(const Stages&, const Stages&) = default;
};
/// What a worker's process has used so far.
struct ProcessUse {
  std::uint64_t cpu_ms = 0;      ///< processor time of all its threads
  std::uint32_t memory_mib = 0;  ///< the most that was resident at a time; 0 = unknown
  friend bool operator==(const ProcessUse&, const ProcessUse&) = default;
};
/// The first commit of a view, then at most every 100 ms.
struct Progress {
  ViewId view{};
  Step committed{};
  /// Wall time of one microbatch, of all threads together: mean since the last Progress; 0 = none.
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
struct Heartbeat {
  /// From the sentinel of an armed worker: where its trainer stands.
  std::optional<WorkerPosition> position;
  bool worker_stopped = false;  ///< the worker's process is stopped (SIGSTOP, a debugger)
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};
/// The member wants to leave at the next boundary (SIGTERM, a notice).
struct LeaveRequest {
  std::string reason;
  friend bool operator==(const LeaveRequest&, const LeaveRequest&) = default;
};
/// Opaque to elastic: step records, checkpoint news, evaluation results; for the engine's run
/// directory.
struct Report {
  Bytes payload;
  float age_ms = 0;  ///< since that happened; it may have waited for a coordinator
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

struct WorkerDied {
  std::string detail;
  bool is_dead = false;       ///< its process has ended for certain; not just a hang
  Incarnation incarnation{};  ///< if dead: the highest that it had accepted
  std::uint64_t author = 0;   ///< and whose that is: two coordinators may have one number
  friend bool operator==(const WorkerDied&, const WorkerDied&) = default;
};

// --- coordinator to member

/// Leave the view's group: at once (a member was lost), or at the next step boundary that the
/// members agree on inside their reduction (a planned change).
struct Stop {
  ViewId view{};
  bool at_boundary = false;
  /// At a boundary: as far as is known, this member is in the next view, which begins at once. It
  /// may compute meanwhile.
  bool stays = false;
  friend bool operator==(const Stop&, const Stop&) = default;
};
struct NewView {
  View view;
  friend bool operator==(const NewView&, const NewView&) = default;
};
/// As NewView, to a member that was sent the view before.
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
/// The job goes on without the member, which had not asked to leave.
[[nodiscard]] constexpr bool is_eviction(DismissReason reason) {
  return reason == DismissReason::kEvicted || reason == DismissReason::kCorrupted ||
         reason == DismissReason::kUnreachable;
}
/// The end of this member's part. Answered by Left, unless it may join again under its id.
struct Dismiss {
  DismissReason reason = DismissReason::kJobDone;
  bool write_checkpoint = false;
  std::string detail;
  bool may_rejoin = false;  ///< the worker is welcome again: as a new member, or with its id (Left)
  friend bool operator==(const Dismiss&, const Dismiss&) = default;
};
/// This coordinator cannot take charge: too few members of the last view came. Try the others. Not
/// an end: the member keeps its id. All that come here are told the same number: with n
/// coordinators in the list, the next one to try is 1 + skip % (n - 1) places further on. Two
/// groups that both took the next one could go round the list for long and never meet.
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

/// Member to coordinator: it cannot make this view from its delta; NewView answers.
struct ViewWanted {
  ViewId view{};
  friend bool operator==(const ViewWanted&, const ViewWanted&) = default;
};

using Message =
    std::variant<Challenge, Hello, Welcome, Refused, Ready, Stopped, Formed, Synced, Progress,
                 Heartbeat, LeaveRequest, Report, StoreSet, StoreGet, WorkerDied, Stop, NewView,
                 StoreValue, Dismiss, Command, CommandReply, CaughtUp, Resume, Left, NoQuorum,
                 NewViewDelta, ViewWanted, ReportsTaken>;

/// Readable texts (reason, detail, host) are cut at their bound; everything else beyond a
/// bound is a programmer error.
[[nodiscard]] Bytes encode(const Message& message);
/// kCorrupt if the bytes are not exactly one message within all bounds.
[[nodiscard]] Result<Message> decode(ByteSpan bytes);
/// The message's name, for logs.
[[nodiscard]] const char* name_of(const Message& message);

/// A member may say this after its handshake. The coordinator closes the connection of a
/// member that says anything else.
[[nodiscard]] bool is_from_worker(const Message& message);

}  // namespace mayfly::elastic
