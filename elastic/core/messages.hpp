#pragma once

// The control messages and their encoding. One connection carries frames of one encoded Message
// each. Bounds: kMessageBytesMax for a frame; every list and string has a bound of its own in
// messages.cpp. decode() never trusts its input and accepts exactly what encode() can produce.

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "elastic/core/view.hpp"
#include "elastic/core/worker_position.hpp"

namespace mayfly::elastic {

inline constexpr std::uint32_t kProtocolVersion = 2;
inline constexpr std::size_t kMessageBytesMax = 4u << 20;

/// Who opens a connection.
enum class Role : std::uint8_t { kWorker = 0, kSentinel = 1, kOperator = 2 };

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
  MemberId member{};  ///< kSentinel: whose; otherwise 0
  std::string host;   ///< for people
  std::uint32_t pid = 0;
  std::string address;  ///< kWorker: of its gradient transport
  /// kWorker: everything that must be equal on all workers of the job (model, data set, seed,
  /// instruction set, ...), as (name, value). The first difference is the reason of a refusal.
  std::vector<std::pair<std::string, std::string>> fingerprint;
  friend bool operator==(const Hello&, const Hello&) = default;
};
struct Welcome {
  MemberId member{};
  friend bool operator==(const Welcome&, const Welcome&) = default;
};
struct Refused {
  std::string reason;
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
  friend bool operator==(const Stopped&, const Stopped&) = default;
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
/// The first commit of a view, then at most every 100 ms.
struct Progress {
  ViewId view{};
  Step committed{};
  float microbatch_ms = 0;  ///< time one microbatch takes on this member; 0 = unknown
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
  friend bool operator==(const WorkerDied&, const WorkerDied&) = default;
};

// --- coordinator to member

/// Leave the view's group: at once (a member was lost), or at the next step boundary that the
/// members agree on inside their reduction (a planned change).
struct Stop {
  ViewId view{};
  bool at_boundary = false;
  friend bool operator==(const Stop&, const Stop&) = default;
};
struct NewView {
  View view;
  friend bool operator==(const NewView&, const NewView&) = default;
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
  kJobFailed = 4
};
/// The end of this member's part. No answer.
struct Dismiss {
  DismissReason reason = DismissReason::kJobDone;
  bool write_checkpoint = false;
  std::string detail;
  friend bool operator==(const Dismiss&, const Dismiss&) = default;
};

// --- operator

struct Command {
  std::string verb;  ///< status, scale, drain, pause, resume, stop
  std::string argument;
  friend bool operator==(const Command&, const Command&) = default;
};
struct CommandReply {
  bool ok = false;
  std::string text;  ///< JSON for status, a sentence otherwise
  friend bool operator==(const CommandReply&, const CommandReply&) = default;
};

using Message =
    std::variant<Challenge, Hello, Welcome, Refused, Ready, Stopped, Formed, Synced, Progress,
                 Heartbeat, LeaveRequest, Report, StoreSet, StoreGet, WorkerDied, Stop, NewView,
                 StoreValue, Dismiss, Command, CommandReply, CaughtUp>;

/// Texts for people (reason, detail, host) are cut at their bound; everything else beyond a
/// bound is a programmer error.
[[nodiscard]] Bytes encode(const Message& message);
/// kCorrupt if the bytes are not exactly one message within all bounds.
[[nodiscard]] Result<Message> decode(ByteSpan bytes);
/// The message's name, for logs.
[[nodiscard]] const char* name_of(const Message& message);

}  // namespace mayfly::elastic
