#pragma once

// The protocol by which a member's state is sent to an observer in the background (ADR 16), or to a
// member that is behind (ADR 24): some members, the donors, each copy a part of it while they
// compute the next step, and send the copies over separate connections.
//
//   observer -> donor   PartRequest
//   donor -> observer   PartHeader, the bytes as they are copied, and their Digest. If there is no
//                       such copy, or the key is wrong, the donor closes the connection.

#include <poll.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/digest.hpp"
#include "base/ids.hpp"
#include "base/net/accept.hpp"
#include "base/net/wake_up.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::engine {

/// A side that receives nothing from the other for this time closes the connection.
inline constexpr Duration kStateIdleMax = seconds(10);

/// The address of a donor, of a fixed size because members exchange it within their group.
struct DonorAddress {
  std::array<char, 94> host{};  ///< numeric, ends with a zero
  std::uint16_t port = 0;       ///< 0 = not a donor
};
static_assert(sizeof(DonorAddress) == 96);

struct PartRequest {
  std::uint64_t magic = 0;
  ViewId since{};         ///< the copy is of the state at the beginning of this view
  std::uint64_t key = 0;  ///< of that view
};
static_assert(sizeof(PartRequest) == 24);

struct PartHeader {
  std::uint64_t magic = 0;
  std::uint64_t bytes = 0;  ///< number of bytes that follow, before their digest
};
static_assert(sizeof(PartHeader) == 16);
static_assert(sizeof(Digest) == 16);

inline constexpr std::uint64_t kPartMagic = 0x3230'7472'6170'796dULL;  // "mypart02"

/// The bytes [first, last) of the packed state that a donor sends.
struct PartRange {
  std::size_t first = 0;
  std::size_t last = 0;
};
[[nodiscard]] constexpr PartRange part_of(std::size_t state_bytes, std::size_t part,
                                          std::size_t parts) {
  return {state_bytes * part / parts, state_bytes * (part + 1) / parts};
}

/// Memory for a packed state, or a part of one, that is written as a whole. It is not zeroed and
/// has ordinary pages: it is needed for one step, while other threads compute, and clearing new
/// huge pages took longer than copying the state of a small network into them.
class PackedBytes {
 public:
  PackedBytes() = default;
  explicit PackedBytes(std::size_t size)
      : data_(std::make_unique_for_overwrite<std::byte[]>(size)), size_(size) {}

  PackedBytes(PackedBytes&& other) noexcept
      : data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}
  PackedBytes& operator=(PackedBytes&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::span<std::byte> span() { return {data_.get(), size_}; }
  [[nodiscard]] std::span<const std::byte> span() const { return {data_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> data_;
  std::size_t size_ = 0;
};

/// A donor, and the memory for its bytes.
struct WantedPart {
  DonorAddress donor;
  std::span<std::byte> into;
  MemberId member{};  ///< the donor, to be named in the error; 0 = not to be named
};

/// Receives every part of the copy (since, key) from all donors at once; blocks. Any thread.
/// kPeerLost if a donor closes its connection (the error names it) or no donor sends anything for
/// `idle_max`; kCorrupt if the bytes do not have the donor's digest or the size of `into`; kAborted
/// once `stop_fd` is readable. `token` is the job's and decides whether connections are encrypted.
[[nodiscard]] Result<void> fetch_parts(ViewId since, std::uint64_t key,
                                       const std::vector<WantedPart>& parts, int stop_fd,
                                       Duration idle_max, ByteSpan token = {});

/// Copies the bytes of a packed state from `first` on, as many as `out` has room for.
using PackFunction = std::function<void(std::size_t first, std::span<std::byte> out)>;

/// The sending side. A short-lived thread makes a copy while compute threads only read the weights.
/// Another thread sends the bytes copied so far to members that know the view's key: with low
/// priority to observers, which receive them in the background, with usual priority to a member for
/// which all others wait.
class StateDonor {
 public:
  enum class Priority { kLow, kUsual };

  /// The first offer() listens on `host`. `token` is the job's and decides whether connections are
  /// encrypted.
  explicit StateDonor(std::string host, Priority priority = Priority::kLow, Bytes token = {});
  ~StateDonor();

  // Trainer thread:
  /// Begins to copy a part of a state with `pack`, on another thread; the state must not change
  /// before wait_until_copied() returns.
  /// Returns the address from which members that know (since, key) can fetch the copy. kIo without
  /// a socket.
  [[nodiscard]] Result<DonorAddress> offer(ViewId since, std::uint64_t key, PackFunction pack,
                                           PartRange part);
  /// Usually returns at once: a copy takes less time than a step.
  void wait_until_copied();
  /// Frees the copies of other views than these. Transfers that have begun are completed.
  void keep_only(std::span<const ViewId> wanted);
  [[nodiscard]] std::size_t copy_count() const;

 private:
  /// A part of the state, written from front to back by the copying thread.
  struct Copy {
    std::uint64_t key = 0;
    PackedBytes bytes;
    std::atomic<std::size_t> copied{0};  // bytes that are written, and may be read
  };
  class Connection;
  using Connections = std::vector<std::unique_ptr<Connection>>;

  [[nodiscard]] Result<void> listen();
  void copy(const PackFunction& pack, std::size_t first, Copy& copy);
  void serve();
  [[nodiscard]] bool accept_connections(Connections& connections);
  void make_place(Connections& connections);
  void turn_away(const Connection& connection, const char* why);
  void advance_all(Connections& connections, std::span<const pollfd> polled);
  [[nodiscard]] std::shared_ptr<const Copy> find(const PartRequest& request) const;

  std::string host_;
  Priority priority_;
  Bytes token_;
  DonorAddress address_;
  UniqueFd listener_;
  WakeUp wake_;  // wakes the server thread
  std::atomic<bool> stopping_{false};

  mutable std::mutex mutex_;
  std::condition_variable copied_;
  // Guarded by mutex_:
  bool copying_ = false;
  std::map<ViewId, std::shared_ptr<Copy>> copies_;  // shared with connections that send one

  RejectionLog rejection_log_{"state donor"};  // used by the server thread
  std::thread copier_;
  std::thread server_;
};

}  // namespace mayfly::engine
