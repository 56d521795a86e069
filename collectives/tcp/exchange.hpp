#pragma once

// The algorithms of one operation over channels: which bytes to send and receive next, and when.
// Never blocks; the engine waits between calls (see tcp_engine). One thread at a time.

#include <memory>
#include <span>
#include <string>

#include "collectives/group_engine.hpp"
#include "collectives/tcp/channel.hpp"

namespace mayfly::collectives {

/// A member that this one is connected to.
struct TcpPeer {
  MemberId member{};
  std::unique_ptr<Channel> channel;  ///< null: not connected, or the member itself

  /// The error for a connection that broke.
  [[nodiscard]] Error lost() const {
    return {Errc::kPeerLost, "the connection to member " + std::to_string(value(member)) + " broke",
            member};
  }
  /// The error for a host that does not answer.
  [[nodiscard]] Error unreachable() const {
    return {Errc::kUnreachable,
            "the host of member " + std::to_string(value(member)) + " does not answer", member};
  }
};

/// The events of one peer's channel that an exchange still waits for.
struct Wants {
  /// Bytes to receive before the exchange can continue; 0: none. An exchange that needs the data of
  /// several peers may name one at a time: the data of the others will have arrived when it is
  /// called again.
  std::size_t data = 0;
  bool room = false;  ///< room to send
  /// Everything has been received, but something must still be sent, now or later: if the peer's
  /// connection ends, the peer is lost.
  bool presence = false;

  [[nodiscard]] bool anything() const { return data > 0 || room || presence; }
};

/// One operation in progress on one member.
class Exchange {
 public:
  virtual ~Exchange() = default;

  /// This member has sent and received everything.
  [[nodiscard]] virtual bool complete() const = 0;
  /// Sends, receives and reduces as many bytes as is possible now; false: none. Fails with
  /// kPeerLost or kCorrupt.
  [[nodiscard]] virtual Result<bool> pump() = 0;
  /// To be asked before a thread sleeps: what pump() needs from the peer of this rank, which is not
  /// the member itself, to continue.
  [[nodiscard]] virtual Wants wants_of(std::size_t rank) const = 0;
};

/// Size of the scratch memory of an exchange.
inline constexpr std::size_t kExchangeScratchBytes = 272 * 1024;

// Each of the functions below makes the exchange of one member, the one with `rank`. `operation`,
// `peers` (by rank) and `scratch` outlive it.

/// Any operation along the ring: the peers before and after `rank` are connected.
[[nodiscard]] std::unique_ptr<Exchange> make_ring_exchange(const Operation& operation,
                                                           std::size_t rank,
                                                           std::span<TcpPeer> peers,
                                                           std::span<std::byte> scratch);
/// The largest vector that is worth sending whole to every member, rather than in parts.
[[nodiscard]] std::size_t one_shot_bytes_max(std::size_t members);
/// An all-reduce in one step: every member sends its whole vector to every other and adds all of
/// them by rank. At most one_shot_bytes_max(). All peers are connected.
[[nodiscard]] std::unique_ptr<Exchange> make_one_shot_exchange(const Operation& operation,
                                                               std::size_t rank,
                                                               std::span<TcpPeer> peers,
                                                               std::span<std::byte> scratch);
/// An all-reduce in two steps: every member sends each other member that member's segment, reduces
/// its own, and sends the result to all. Pieces of the second step follow as soon as they are
/// reduced. The bytes of a ring, but two dependent steps instead of 2 (size - 1). All peers are
/// connected.
[[nodiscard]] std::unique_ptr<Exchange> make_two_shot_exchange(const Operation& operation,
                                                               std::size_t rank,
                                                               std::span<TcpPeer> peers,
                                                               std::span<std::byte> scratch);
/// An all-reduce by recursive doubling, in log2(size) steps: partners at distance 1, 2, 4, ... swap
/// and add whole vectors (Thakur, Rabenseifner, Gropp: "Optimization of Collective Communication
/// Operations in MPICH", 2005). The fewest messages, so the best where members share too few cores.
/// At most kDoublingBytesMax. All peers are connected.
inline constexpr std::size_t kDoublingBytesMax = 64 * 1024;
[[nodiscard]] std::unique_ptr<Exchange> make_doubling_exchange(const Operation& operation,
                                                               std::size_t rank,
                                                               std::span<TcpPeer> peers,
                                                               std::span<std::byte> scratch);

/// Sends more of `message`, of which `sent` bytes have left; false: nothing moved. `more`: other
/// bytes follow at once. kPeerLost.
[[nodiscard]] Result<bool> send_rest(TcpPeer& to, ByteSpan message, std::size_t& sent, bool more);
/// Receives more of `message`, which begins with the peer's OperationHeader; false: nothing moved.
/// kPeerLost, and kCorrupt if the header is not the same as `ours`.
[[nodiscard]] Result<bool> receive_rest(TcpPeer& from, std::span<std::byte> message,
                                        std::size_t& received, const OperationHeader& ours);

}  // namespace mayfly::collectives
