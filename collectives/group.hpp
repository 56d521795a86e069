#pragma once

// The port of gradient exchange. A Group is the communicator of exactly one view: its rank and size
// never change. When membership changes the group is aborted and destroyed, and the Transport,
// which lives as long as the process, forms a new one for the new view.

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "collectives/plan/reduce_kernels.hpp"

namespace mayfly::collectives {

/// The address of one member of the group.
struct Peer {
  MemberId member;
  std::string address;  ///< what that member's Transport::address() returned
};

/// Key-value rendezvous of one view, for transports that need one (Gloo). Any thread.
class RendezvousStore {
 public:
  virtual ~RendezvousStore() = default;
  virtual Result<void> set(const std::string& key, ByteSpan value) = 0;
  /// Waits until the key exists.
  virtual Result<Bytes> get(const std::string& key, Instant deadline) = 0;
};

/// All data that is needed to form the group of one view.
struct GroupSpec {
  ViewId view{};
  Rank rank{};              ///< this member's own position in `peers`
  std::vector<Peer> peers;  ///< ordered by rank, this member included
  std::uint64_t key = 0;    ///< random per view; a connection that does not know it is refused
  /// Outlives the group; may be null for transports that need none.
  RendezvousStore* store = nullptr;
};

/// A started operation. Its buffers belong to the group until wait() returns anything but
/// kDeadline, or until the Work is destroyed (which waits for the operation to finish or be
/// aborted); after that the group never touches them again. One thread at a time.
class Work {
 public:
  virtual ~Work() = default;
  /// Blocks until the operation is complete. kDeadline: it is still running. kAborted, kPeerLost,
  /// kUnreachable, kCorrupt: the buffers hold garbage and every other operation of this group fails
  /// as well; the culprit is named where it is known.
  virtual Result<void> wait(Instant deadline) = 0;
  /// When the operation ended, on monotonic_now()'s clock, for traces; zero while it runs, or if
  /// the group does not know it. Same thread as wait().
  [[nodiscard]] virtual Instant finished_at() const { return {}; }
};

class DeviceGroup;

/// One communicator. Operations are started by one thread, in the same order on every member, and
/// run in that order; several may be in flight. Only abort() may be called from any thread.
class Group {
 public:
  virtual ~Group() = default;

  [[nodiscard]] virtual ViewId view() const = 0;
  [[nodiscard]] virtual Rank rank() const = 0;
  [[nodiscard]] virtual std::uint32_t size() const = 0;

  /// Reduces `count` elements in place. Integer sums wrap around; integer results and maxima are
  /// the same bits for every group size, float sums are not.
  virtual std::unique_ptr<Work> all_reduce(void* data, std::size_t count, DataType type,
                                           ReduceOp op) = 0;
  /// all_reduce() and wait() in one call, for callers that have nothing else to do: if the
  /// transport can, the calling thread carries out the operation. If the deadline passes, the group
  /// is aborted, because otherwise the buffer could not be returned to the caller.
  virtual Result<void> all_reduce_blocking(void* data, std::size_t count, DataType type,
                                           ReduceOp op, Instant deadline) {
    return wait_or_abort(*all_reduce(data, count, type, op), deadline);
  }
  /// Waits for an operation of this group. If the deadline passes, the group is aborted, because a
  /// Work can be destroyed only after its operation, which uses the caller's buffers, has ended.
  [[nodiscard]] Result<void> wait_or_abort(Work& work, Instant deadline) {
    Result<void> done = work.wait(deadline);
    if (!done.ok() && done.error().code == Errc::kDeadline) {
      abort();
    }
    return done;
  }
  /// Copies the root's bytes to all members. All of them pass the same size.
  virtual std::unique_ptr<Work> broadcast(std::span<std::byte> data, Rank root) = 0;
  /// Concatenates all members' equally long `mine` by rank into `all` (size() times as long).
  virtual std::unique_ptr<Work> all_gather(ByteSpan mine, std::span<std::byte> all) = 0;
  /// Completes when every member has started it.
  virtual std::unique_ptr<Work> barrier() = 0;

  /// The part of this group whose operations work in the memory of the members' GPUs; its
  /// operations have an order of their own. Valid as long as the group. Null: the group has none.
  [[nodiscard]] virtual DeviceGroup* on_device() { return nullptr; }

  /// The total time for which operations of this group, the present one included, have waited
  /// because no data came from other members or could be sent to them; nothing if the transport
  /// does not measure it. To be called by the thread that starts operations.
  [[nodiscard]] virtual std::optional<Duration> time_waited() const { return std::nullopt; }

  /// Makes every operation in flight, and every later one, fail with kAborted as soon as possible
  /// (milliseconds), whatever the peers do. Any thread, any number of times, never blocks.
  virtual void abort() noexcept = 0;
};

/// Forms groups; one per process. Owns what outlives a view: listening sockets, threads, devices.
class Transport {
 public:
  virtual ~Transport() = default;

  /// The address that other members need to reach this one, for Peer::address.
  [[nodiscard]] virtual std::string address() const = 0;
  /// Blocks until every peer has formed the same view, or fails: kPeerLost, kUnreachable or
  /// kDeadline (with culprit); kAborted; kRefused or kCorrupt if another program answers at a
  /// peer's address, or a peer has another view; kInvalidInput for a wrong `spec`; kIo. One call at
  /// a time; the previous group must have been destroyed.
  [[nodiscard]] virtual Result<std::unique_ptr<Group>> form(const GroupSpec& spec,
                                                            Instant deadline) = 0;
  /// Makes form() of this and every older view fail with kAborted, whether it runs now or is called
  /// later. Any thread, never blocks.
  virtual void give_up_on(ViewId view) noexcept = 0;
};

// Additional functions of a Group whose data is in device memory. CUDA's types are used only in
// .cpp files: a stream is passed as the pointer that cudaStream_t is.

/// A cudaStream_t of the group's device (null: the legacy default stream).
using DeviceStream = void*;
/// A cudaEvent_t; only adapters interpret it. Null: none.
using DeviceEvent = void*;

/// A group whose buffers are device memory: `data`, `mine` and `all` of every operation are device
/// pointers. all_gather's `mine` is either apart from `all` or in its own place inside of it.
class DeviceGroup : public Group {
 public:
  /// The next operation reads its buffers only after all work that was submitted to `stream` before
  /// this call is complete. Several calls before one operation add up. Without this call an
  /// operation starts at once, so its buffers must have been filled before. Does not wait; to be
  /// called by the thread that starts operations. `stream` must not be capturing a graph. kIo if
  /// the device refuses.
  virtual Result<void> follow(DeviceStream stream) = 0;
};

}  // namespace mayfly::collectives
