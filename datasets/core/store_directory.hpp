#pragma once

// Which host keeps which items of a data set, for stores that decide together what to keep
// (ADR 33). Nothing but tests uses it yet; --store-peers does without. Views, assignments, the
// order of samples, sizes and capacities are known to every host, so each replays the same reads on
// a directory of its own and all directories are equal without messages. A directory is only ever a
// hint: if a host turns out not to have an item, or does not answer in time, the reader goes to
// storage and offers what it has read to that host, which has room for it. So a wrong entry costs a
// read and never a wrong image.
//
// An item has up to two copies, on different hosts. Whoever first reads an item that nobody keeps
// adopts it, if it has room. Room to spare holds second copies, which are given up when a host
// needs their room for an item that nobody keeps; no other item is ever given up. The loss of a
// host removes its entries and nothing else.
//
// Pure; one thread at a time.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "datasets/core/sample_stream.hpp"

namespace mayfly::datasets {

/// A host with a store: 1 to kStoreHostsMax. The caller gives numbers to hosts, the same on all.
using StoreHost = std::uint8_t;
inline constexpr StoreHost kNoStoreHost = 0;
inline constexpr StoreHost kStoreHostsMax = 254;

class StoreDirectory {
 public:
  /// A copy of an item that a host keeps from now on, and what that host gives up for it.
  struct Kept {
    StoreHost host = kNoStoreHost;  ///< none: no copy is added
    std::vector<std::uint64_t> given_up;
  };
  /// A read, and what follows from it.
  struct Read {
    StoreHost from = kNoStoreHost;  ///< the reader itself, another host, or none: from storage
    Kept kept;                      ///< if it is not the reader, the reader offers it the bytes
  };
  /// An item that a host is sent before another one leaves.
  struct Move {
    std::uint64_t item = 0;
    Kept kept;
  };

  /// `sizes` in bytes, by item; at least one item.
  explicit StoreDirectory(std::vector<std::uint32_t> sizes);

  /// A host that is not there yet comes, with room for so many bytes and without any item.
  void join(StoreHost host, std::uint64_t capacity);
  /// A host goes. Returns the bytes of the items of which it had the only copy.
  std::uint64_t leave(StoreHost host);

  /// Whom a reader asks for an item, in this order, before it goes to storage; itself if it keeps
  /// it.
  [[nodiscard]] std::array<StoreHost, 2> to_ask(StoreHost reader, std::uint64_t item) const;
  /// A host that is there reads an item, in a step that was committed.
  Read read(StoreHost reader, std::uint64_t item);

  /// What a host that will leave sends to which others before: the items of which it has the only
  /// copy, those that are needed first in front, as far as others have room and as `bytes_max`
  /// allows. `next_use` is the position of the stream at which an item is used next. They count as
  /// kept by the others from now on, and the leaver adopts nothing any more.
  std::vector<Move> hand_over(StoreHost leaver,
                              const std::function<std::uint64_t(std::uint64_t item)>& next_use,
                              std::uint64_t bytes_max);

  [[nodiscard]] std::uint64_t items() const { return sizes_.size(); }
  [[nodiscard]] bool has_host(StoreHost host) const { return hosts_[host].is_there; }
  /// The hosts that keep the item; the second is none if only one or none does.
  [[nodiscard]] std::array<StoreHost, 2> owners(std::uint64_t item) const { return owners_[item]; }
  [[nodiscard]] bool is_kept_by(StoreHost host, std::uint64_t item) const;
  /// Bytes of the host's room that nothing takes up.
  [[nodiscard]] std::uint64_t free_bytes(StoreHost host) const { return hosts_[host].free; }
  /// Bytes of the items that nobody keeps: what an epoch reads from storage if nothing is adopted.
  [[nodiscard]] std::uint64_t absent_bytes() const { return absent_; }

  friend bool operator==(const StoreDirectory&, const StoreDirectory&) = default;

 private:
  struct Host {
    bool is_there = false;
    bool is_leaving = false;  ///< it hands over and takes nothing any more
    std::uint64_t free = 0;
    std::uint64_t doubled = 0;  ///< bytes of its items that another host keeps, too
    std::uint64_t next = 0;     ///< where to look for the next one to give up
    friend bool operator==(const Host&, const Host&) = default;
  };

  void add(StoreHost host, std::uint64_t item);
  void remove(StoreHost host, std::uint64_t item);
  [[nodiscard]] Kept keep(StoreHost host, std::uint64_t item);
  [[nodiscard]] std::uint64_t room(StoreHost host, bool gives_up) const;
  [[nodiscard]] StoreHost roomiest(std::uint64_t bytes, bool gives_up) const;
  [[nodiscard]] StoreHost adopter(StoreHost reader, std::uint64_t bytes) const;
  [[nodiscard]] bool is_spare(std::uint64_t bytes) const;

  std::vector<std::uint32_t> sizes_;
  std::vector<std::array<StoreHost, 2>> owners_;  // by item; a single one is the first
  std::array<Host, kStoreHostsMax + 1> hosts_{};
  std::uint64_t absent_ = 0;
  std::uint64_t free_ = 0;  // of all hosts
};

/// The reads of one step, in the order of its microbatches: host_of[m] reads microbatch m, which is
/// `microbatch` samples from position `first` + m * `microbatch` of the stream.
void replay_step(StoreDirectory& directory, const SampleStream& stream, std::uint64_t first,
                 std::uint32_t microbatch, std::span<const StoreHost> host_of);

/// The first position from `position` on at which the stream uses the sample.
[[nodiscard]] std::uint64_t next_use_of(const SampleStream& stream, std::uint64_t position,
                                        std::uint64_t sample);

}  // namespace mayfly::datasets
