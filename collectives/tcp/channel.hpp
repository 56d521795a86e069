#pragma once

// A stream of bytes to and from one other member, without blocking. It hides whether the bytes go
// through shared memory (members of one host) or a socket. One thread at a time.

#include <poll.h>

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "base/bytes.hpp"
#include "base/net/sockets.hpp"
#include "base/result.hpp"
#include "base/sealed_memory.hpp"
#include "base/unique_fd.hpp"
#include "collectives/plan/reduce_kernels.hpp"

namespace mayfly::collectives {

/// How received elements are combined with those in memory.
struct Reduction {
  DataType type = DataType::kInt32;
  ReduceOp op = ReduceOp::kSum;
};

class Channel {
 public:
  virtual ~Channel() = default;

  /// Sends as many bytes as fit now. `more`: further bytes follow at once, so a short packet may
  /// wait for them.
  [[nodiscard]] virtual Moved send(ByteSpan data, bool more) = 0;
  /// Receives the bytes that have arrived.
  [[nodiscard]] virtual Moved receive(std::span<std::byte> into) = 0;
  /// Receives numbers and reduces them into `into` (aligned to the element, a multiple of it long);
  /// counts whole elements. `scratch` is free for use meanwhile.
  [[nodiscard]] virtual Moved receive_and_reduce(std::span<std::byte> into, Reduction reduction,
                                                 std::span<std::byte> scratch) = 0;

  /// To be called before poll(): sets `watched` so that poll() returns when `wanted_bytes` (if not
  /// 0) can be received, when there is room to send (`wants_room`), or when the other side has
  /// ended, which ends every poll() from then on. False: the bytes have arrived, or there is room,
  /// already.
  [[nodiscard]] virtual bool watch(std::size_t wanted_bytes, bool wants_room, pollfd& watched) = 0;
  /// To be called when poll() returned events for this channel. True: the other side has ended (the
  /// bytes that it has sent can still be received).
  [[nodiscard]] virtual bool woken(short events) = 0;
  /// True: the other side's host does not answer any more, see is_unreachable().
  [[nodiscard]] virtual bool unreachable() const = 0;
};

/// A channel over a connected stream socket (TCP or Unix-domain), which it owns.
[[nodiscard]] std::unique_ptr<Channel> make_socket_channel(UniqueFd socket);

/// A channel between two members of one host: bytes are exchanged through `memory`, which has
/// kShmChannelBytes (shm_pipe.hpp) and was made by the side with `is_creator`. `bell`, a connected
/// Unix-domain socket that carries nothing else from now on, ends sleeps and shows that the other
/// side has ended (the kernel closes it in any case).
[[nodiscard]] std::unique_ptr<Channel> make_shm_channel(UniqueFd bell, SealedMemory memory,
                                                        bool is_creator);

}  // namespace mayfly::collectives
