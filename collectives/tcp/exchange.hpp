#pragma once

// One operation as bytes that come and go over channels: what to send and receive next, and what
// that depends on. Never blocks; the link sleeps in between (see tcp_link).

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/ring_link.hpp"
#include "collectives/tcp/channel.hpp"

namespace mayfly::collectives {

/// A member we are connected to.
struct TcpPeer {
  MemberId member{};
  std::unique_ptr<Channel> channel;  ///< null: not connected, or ourselves
};

/// What an exchange still wants of one peer.
struct Wants {
  /// Bytes to receive that are worth waking up for; 0: none. An exchange that needs the data of
  /// several peers may ask for one of them at a time: the others' have arrived when it comes back.
  std::size_t data = 0;
  bool room = false;  ///< to send
  /// All has been received, something must still be sent (now or later): if the peer goes, it is
  /// lost.
  bool presence = false;

  [[nodiscard]] bool anything() const { return data > 0 || room || presence; }
};

/// Fewer bytes are not worth waking a thread for as long as more are to come.
inline constexpr std::size_t kWakeBytes = 64 * 1024;

class Exchange {
 public:
  virtual ~Exchange() = default;

  [[nodiscard]] virtual bool complete() const = 0;
  /// Moves what can be moved; false: nothing could. Fails with kPeerLost or kCorrupt.
  [[nodiscard]] virtual Result<bool> pump() = 0;
  [[nodiscard]] virtual Wants wants_of(std::size_t rank) const = 0;
};

/// Memory for an exchange's own use.
inline constexpr std::size_t kExchangeScratchBytes = 272 * 1024;

/// The largest vector that is worth sending whole to everybody, rather than in parts.
[[nodiscard]] std::size_t one_shot_bytes_max(std::size_t members);

/// `task` along the ring: peers before and after `rank` are connected.
[[nodiscard]] std::unique_ptr<Exchange> make_ring_exchange(const RingTask& task, std::size_t rank,
                                                           std::span<TcpPeer> peers,
                                                           std::span<std::byte> scratch);
/// An all-reduce in one step: everybody sends its whole vector to everybody else and adds all of
/// them by rank. At most one_shot_bytes_max(). All peers are connected.
[[nodiscard]] std::unique_ptr<Exchange> make_one_shot_exchange(const RingTask& task,
                                                               std::size_t rank,
                                                               std::span<TcpPeer> peers,
                                                               std::span<std::byte> scratch);
/// An all-reduce in two steps: everybody sends each other member that member's segment, reduces
/// its own, and sends the result to everybody. Pieces of the second step follow as soon as they are
/// reduced. The bytes of a ring, but two dependent steps instead of 2 (size - 1). All peers are
/// connected.
[[nodiscard]] std::unique_ptr<Exchange> make_two_shot_exchange(const RingTask& task,
                                                               std::size_t rank,
                                                               std::span<TcpPeer> peers,
                                                               std::span<std::byte> scratch);

/// An all-reduce by recursive doubling, in log2(size) steps: partners at distance 1, 2, 4, ... swap
/// and add whole vectors (Thakur, Rabenseifner, Gropp: "Optimization of Collective Communication
/// Operations in MPICH", 2005). The fewest messages, so the best where members share too few cores.
/// At most kDoublingBytesMax. All peers are connected.
inline constexpr std::size_t kDoublingBytesMax = 64 * 1024;
[[nodiscard]] std::unique_ptr<Exchange> make_doubling_exchange(const RingTask& task,
                                                               std::size_t rank,
                                                               std::span<TcpPeer> peers,
                                                               std::span<std::byte> scratch);

/// The error for a peer whose connection broke.
[[nodiscard]] Error lost_peer(const TcpPeer& peer);
/// The same for one whose host does not answer.
[[nodiscard]] Error unreachable_peer(const TcpPeer& peer);

/// The headers of one operation to and from one peer.
class HeaderExchange {
 public:
  HeaderExchange(const RingHeader& ours, TcpPeer& peer) : ours_(ours), peer_(&peer) {}

  [[nodiscard]] bool sent() const { return sent_bytes_ == sizeof(RingHeader); }
  [[nodiscard]] bool received() const { return received_bytes_ == sizeof(RingHeader); }
  /// Sends or receives more of it; false: nothing moved. `more`: data follow at once.
  [[nodiscard]] Result<bool> send(bool more);
  [[nodiscard]] Result<bool> receive();

 private:
  RingHeader ours_;
  TcpPeer* peer_;
  RingHeader theirs_;
  std::size_t sent_bytes_ = 0;
  std::size_t received_bytes_ = 0;
};

/// kCorrupt unless the peer runs the same operation as we do.
[[nodiscard]] Result<void> check_header(const RingHeader& ours, const RingHeader& theirs,
                                        MemberId from);

}  // namespace mayfly::collectives
