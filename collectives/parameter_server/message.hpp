#pragma once

// The messages between workers and shards: a header of fixed size, little-endian, then perhaps one
// contiguous run of floats. No keys are sent: both sides cut the same vector in the same way.
// docs/parameter_server.md has the fields. Pure functions; any thread.

#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "collectives/parameter_server/core/shard_core.hpp"

namespace mayfly::parameter_server {

enum class MessageType : std::uint8_t {
  kHello = 1,   ///< worker: its id, with the view's key, and the leases that it has
  kWelcome,     ///< shard: the worker is admitted
  kPush,        ///< worker: a slice's gradient; may ask for parameters and for a lease
  kPull,        ///< worker: asks for parameters
  kRest,        ///< worker: it has nothing to do
  kParameters,  ///< shard: the answer to a request for parameters
  kLease,       ///< first shard: a lease
  kStatePull,   ///< worker: asks for parameters and momentum, for a snapshot
  kState,       ///< shard: both
  kBye,         ///< worker: it has received the lease that ends the job
  // Between the leader of a shard and its follower (core/replicas.hpp). Messages that the leader
  // has received are forwarded with a number in `entry`: kHello, kPush, kPull, kRest; a push also
  // with a hash in `prefix`. And:
  kRoster,      ///< leader: the workers of the present view; the payload is their ids
  kStragglers,  ///< leader: slow workers; the payload is their ids, each with its ratio
  kHold,        ///< leader: no new step is begun
  kFollow,      ///< leader: its shard, with the view's key
  kFollowing,   ///< follower: accepts the leader; it has all entries up to `entry`
  kTaken,       ///< follower: it has all entries up to `entry`
};

namespace flags {
inline constexpr std::uint8_t kAsks = 1;        ///< kPush: `wanted` and `question` are set
inline constexpr std::uint8_t kWantsLease = 2;  ///< kPush: the worker has no other work
inline constexpr std::uint8_t kExact = 4;       ///< kLease: with parameters of `version`
inline constexpr std::uint8_t kAtOnce = 8;      ///< kLease, kPush: see Lease::at_once
inline constexpr std::uint8_t kShares = 16;     ///< kWelcome: the worker's slots are in use
}  // namespace flags
struct Header {
  std::uint32_t magic = 0;
  std::uint8_t format = 0;
  MessageType type = MessageType::kHello;
  std::uint8_t flags = 0;
  std::uint8_t lease_kind = 0;
  std::uint64_t view = 0;    ///< kHello, kFollow: the sender's view
  std::uint64_t key = 0;     ///< kHello, kFollow: the key of that view
  std::uint64_t worker = 0;  ///< member id of the worker
  std::uint32_t shard = 0;
  std::uint32_t count = 0;     ///< kLease: slices; kPush: microbatches in the sum
  std::uint64_t slice = 0;     ///< kPush; kLease: the first one; kState: so many are in it
  std::uint64_t version = 0;   ///< kPush, kLease: of what is used; kParameters, kState: of these
  std::uint64_t wanted = 0;    ///< kPush, kPull: this version or a later one
  std::uint64_t question = 0;  ///< kPush, kPull, kStatePull; repeated in the answer
  std::uint64_t clock = 0;     ///< kPush, kPull, kLease: see Lease
  std::uint64_t serial = 0;   ///< kLease: its; kHello: received; kPush, kRest: leases that are over
  std::uint64_t prefix = 0;   ///< kState: all slices before this one are in it; kPush of a leader:
                              ///< hash of a part of its parameters before the push; 0 = not made
  std::uint32_t samples = 0;  ///< kPush
  std::uint32_t correct = 0;  ///< kPush: top-1 hits
  double loss = 0;            ///< kPush: sum over the microbatches
  std::array<std::uint32_t, 4> sample_hash{};  ///< kPush: see engine/reduction/gradient_sums.hpp
  std::uint64_t rewound_at = 0;  ///< kLease, and every message of a worker: see Rewind
  std::uint64_t rewound_to = 0;
  std::uint64_t entry = 0;  ///< between leader and follower
  std::uint64_t slot = 0;   ///< kPush, kParameters: slot of the payload; 0: it follows the header
  std::uint64_t payload_bytes = 0;
  std::uint64_t payload_check = 0;  ///< hash of the payload; 0 = not made
  std::uint64_t check = 0;          ///< hash of all fields before it
};
inline constexpr std::size_t kHeaderBytes = 184;
static_assert(sizeof(Header) == kHeaderBytes && std::is_trivially_copyable_v<Header>);

/// Sets magic, format and check.
void seal(Header& header);
/// kCorrupt if the header is not of this protocol, is damaged, or has another format or an unknown
/// type; if it names a slot although its type has none; or if its payload is larger than
/// `payload_max`.
[[nodiscard]] Result<void> check_header(const Header& header, std::uint64_t payload_max);
/// The hash of two byte ranges as if they were one. Never 0.
[[nodiscard]] std::uint64_t payload_hash(ByteSpan first, ByteSpan second);

/// The header of a kLease message, without the worker's id.
[[nodiscard]] Header header_of(const Lease& lease);
/// The lease in a header; kCorrupt if it is of an unknown kind.
[[nodiscard]] Result<Lease> lease_of(const Header& header);

/// The event of a shard's state machine for a message kHello, kPush, kPull, kRest or kHold; other
/// messages are not events by themselves.
[[nodiscard]] ShardEvent event_of(const Header& header);
/// The type of the message that informs a follower of an event that no worker causes (kWorkers,
/// kStragglers, kHold).
[[nodiscard]] MessageType order_type(ShardEventKind kind);
/// Upper bound on the payload of kRoster and kStragglers, in bytes.
inline constexpr std::uint64_t kRosterBytesMax = std::uint64_t{1} << 17;
/// The payload of kRoster and kStragglers for an event, and the events for such payloads. Empty for
/// other events.
[[nodiscard]] std::vector<std::uint64_t> words_of(const ShardEvent& event);
[[nodiscard]] ShardEvent roster_of(const std::vector<std::uint64_t>& words);
[[nodiscard]] ShardEvent stragglers_of(const std::vector<std::uint64_t>& words);

/// A message that a leader has received, in the form in which its follower is sent it.
struct ReplicaEntry {
  Header header;                     ///< as it was received, with `entry`, and a push with `prefix`
  std::vector<std::uint64_t> words;  ///< the payload of kRoster and kStragglers
  /// The payload of a push that changes the parameters; of other pushes empty. The bytes must not
  /// change or move before the follower has the entry.
  ByteSpan gradient;
};

}  // namespace mayfly::parameter_server
