#pragma once

// What differs between the ring transports: moving bytes to the next and from the previous member.
// Everything above it (operations, queue, errors) is collectives/ring_group.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "collectives/plan/types.hpp"

namespace mayfly::collectives {

/// Goes ahead of every operation's data, so that members that do not run the same operation find
/// out before they mix up their numbers.
struct RingHeader {
  std::uint64_t sequence = 0;  ///< number of the operation in its group
  std::uint64_t shape = 0;     ///< hash of kind, type and size

  friend bool operator==(const RingHeader&, const RingHeader&) = default;
};
static_assert(sizeof(RingHeader) == 16);

/// One operation as two streams of pieces in the caller's memory; see
/// collectives/plan/ring_schedule for the rule that couples them.
struct RingTask {
  struct Piece {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  RingHeader header;
  std::vector<Piece> outgoing;
  std::vector<Piece> incoming;
  std::size_t reduced = 0;      ///< the first so many incoming pieces are reduced into memory
  std::size_t ready_bytes = 0;  ///< of the outgoing stream, may be sent before anything came in
  DataType type = DataType::kInt32;
  ReduceOp op = ReduceOp::kSum;
};

/// The two neighbours in the ring, by name.
struct RingNeighbours {
  MemberId previous{};
  MemberId next{};
};

/// A member's connections to its two neighbours. run() is called by one thread at a time.
class RingLink {
 public:
  virtual ~RingLink() = default;

  /// Sends and receives the whole task. Fails with kPeerLost (naming the neighbour whose connection
  /// broke), kCorrupt (the previous member runs another operation), kAborted, or kDeadline. After a
  /// failure the link is good for nothing but destruction, and the task's memory holds garbage; it
  /// is not touched any more once run() has returned.
  [[nodiscard]] virtual Result<void> run(const RingTask& task, std::optional<Instant> deadline) = 0;

  /// Makes run() return kAborted, now and in future. Any thread, never blocks.
  virtual void abort() noexcept = 0;
};

}  // namespace mayfly::collectives
