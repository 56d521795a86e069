#pragma once

// What differs between the transports that move bytes themselves. Everything above it (operations,
// queue, errors) is collectives/ring_group.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
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
  /// The task is an all-reduce of `all_reduced`: a link that reaches every member may then take a
  /// shorter way than the ring to the same result (float sums: another order of addition). Every
  /// member must take the same way.
  bool is_all_reduce = false;
  std::span<std::byte> all_reduced{};
};

/// The two neighbours in the ring, by name.
struct RingNeighbours {
  MemberId previous{};
  MemberId next{};
};

/// A member's connections to its two neighbours, or to more members. One thread at a time, except
/// for abort().
class RingLink {
 public:
  virtual ~RingLink() = default;

  /// Makes `task` the one that advance() works on; the one before is complete. It stays where it is
  /// until then.
  virtual void begin(const RingTask& task) = 0;
  /// Sends and receives until the task is complete (true), or `until` has passed: then false, and
  /// advance() may be called again, if can_pause(); else it fails with kDeadline. Fails with
  /// kPeerLost (naming the neighbour whose connection broke), kCorrupt (the other member runs
  /// another operation) or kAborted. After a failure the link is good for nothing but destruction,
  /// and the task's memory holds garbage; it is not touched between calls.
  [[nodiscard]] virtual Result<bool> advance(std::optional<Instant> until) = 0;
  /// Whether a task that advance() left at `until` can be continued.
  [[nodiscard]] virtual bool can_pause() const = 0;

  /// Makes advance() return kAborted, now and in future. Any thread, never blocks.
  virtual void abort() noexcept = 0;
};

}  // namespace mayfly::collectives
