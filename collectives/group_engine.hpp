#pragma once

// The port of an engine, which carries out the operations of a group: over TCP and shared memory,
// Gloo or MPI. collectives/queued_group makes a Group of an engine. Functions that several engines
// need are here, too.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "collectives/plan/reduce_kernels.hpp"

namespace mayfly::collectives {

/// Sent before every operation's data, so that members that do not run the same operation detect it
/// before they combine their data.
struct OperationHeader {
  std::uint64_t sequence = 0;  ///< number of the operation in its group
  std::uint64_t shape = 0;     ///< hash of kind, type and size

  friend bool operator==(const OperationHeader&, const OperationHeader&) = default;
};
static_assert(sizeof(OperationHeader) == 16);

/// One operation of a group. The bytes of `data` are the caller's.
struct Operation {
  enum class Kind : std::uint8_t {
    kAllReduce = 1,
    kBroadcast,
    kAllGather,  ///< the member's own part is in its place already
    kBarrier,    ///< an all-reduce of one int32, complete once every member has contributed
  };
  Kind kind = Kind::kAllReduce;
  std::span<std::byte> data{};  ///< to be reduced, copied from the root, or filled by all members
  DataType type = DataType::kInt32;  ///< of a reduction
  ReduceOp op = ReduceOp::kSum;      ///< of a reduction
  Rank root{};                       ///< of a broadcast
  OperationHeader header{};

  /// True for a barrier, too.
  [[nodiscard]] bool is_reduction() const {
    return kind == Kind::kAllReduce || kind == Kind::kBarrier;
  }
};

/// `operation` with its header; `sequence` is its number in the group, the same on every member.
[[nodiscard]] Operation numbered(Operation operation, std::uint64_t sequence);
/// A barrier over `scratch`, of which it leaves the sum over all members.
[[nodiscard]] Operation barrier_operation(std::int32_t& scratch, std::uint64_t sequence);
/// kCorrupt, naming `from`, unless that member runs the same operation as this one.
[[nodiscard]] Result<void> check_header(const OperationHeader& ours, const OperationHeader& theirs,
                                        MemberId from);

/// An operation along a ring, as two streams of pieces in the caller's memory; see
/// collectives/plan/ring_schedule for the rule that couples them.
struct RingTask {
  struct Piece {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    bool is_reduced = false;  ///< of incoming pieces: added to the data; otherwise they replace it
  };
  std::vector<Piece> outgoing;
  std::vector<Piece> incoming;
  std::size_t ready_bytes = 0;  ///< of the outgoing stream; may be sent before any data arrives
};
/// The stream task of the member with this rank. No piece is empty or longer than
/// `piece_bytes_max`, a multiple of every element's size.
[[nodiscard]] RingTask ring_task(const Operation& operation, std::uint32_t size, Rank rank,
                                 std::size_t piece_bytes_max);

/// Carries out the operations of one group, one after the other. One thread at a time, except for
/// abort(). For groups of more than one member.
class GroupEngine {
 public:
  virtual ~GroupEngine() = default;

  /// From now on advance() works on `operation`, which must stay valid until it is complete. The
  /// previous operation must be complete.
  virtual void begin(const Operation& operation) = 0;
  /// Works until the operation is complete (true), or until `until` has passed: then false, and
  /// advance() may be called again. Fails with kPeerLost (naming the member if it is known),
  /// kUnreachable (a member's host does not answer), kCorrupt (a member runs another operation),
  /// kAborted, or kDeadline if the operation cannot be continued after `until`. After a failure the
  /// engine can only be destroyed, and the operation's memory contains garbage. That memory is
  /// accessed only during calls.
  [[nodiscard]] virtual Result<bool> advance(std::optional<Instant> until) = 0;
  /// True if advance() returns by `until` and the operation can then be continued, so that a thread
  /// that must not wait longer may call it.
  [[nodiscard]] virtual bool returns_by(std::optional<Instant> until) const = 0;
  /// Makes advance() return kAborted, now and in future. Any thread, never blocks.
  virtual void abort() noexcept = 0;

  /// As Group::time_waited(). Any thread.
  [[nodiscard]] virtual std::optional<Duration> time_waited() const { return std::nullopt; }

  /// Whether settle() is to be called from time to time in the milliseconds after an operation.
  [[nodiscard]] virtual bool settles() const { return false; }
  /// Finishes sending for operations that are complete on this member, because other members may
  /// wait for it. Takes microseconds.
  virtual void settle() {}
};

/// The delay of this member's next operation. Any thread, must not block.
using DelaySource = std::function<Duration()>;

/// An engine that delays every operation by `delay`, which is called when the operation begins, as
/// if the first data of this member took so long to arrive. For experiments with stragglers; the
/// results have the same bits.
[[nodiscard]] std::unique_ptr<GroupEngine> make_delayed_engine(std::unique_ptr<GroupEngine> engine,
                                                               DelaySource delay);

}  // namespace mayfly::collectives
