#pragma once

// The plan by which one of several hosts copies images from the stores of others, so that images
// outlive the hosts that keep them (ADR 33). Every host plans for itself, from the indices of all
// hosts. The plans agree because all hosts use the same order of hosts. If their indices differ, an
// item is copied by two hosts or in a later plan. Pure; any thread.
//
// A host keeps an item as a first copy, as long as the host exists, or as a second copy, which it
// gives up when it needs the room for an item that no host keeps. A plan makes second copies only
// while the hosts keep all items, and turns a second copy into a first one when no other host has
// the item. So no host gives up an item that no other host keeps as a first copy.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace mayfly::datasets {

/// The contents of one host's store, as it reports them to others.
struct StoreIndex {
  std::vector<std::uint64_t> kept;    ///< item i: bit i % 64 of word i / 64
  std::vector<std::uint64_t> second;  ///< the kept items that are second copies, likewise
  std::uint64_t free = 0;             ///< free bytes of its room
  std::uint64_t spare = 0;            ///< bytes of its room that second copies use

  [[nodiscard]] static std::uint64_t words(std::uint64_t items) { return (items + 63) / 64; }
  [[nodiscard]] bool keeps(std::uint64_t item) const { return has(kept, item); }
  [[nodiscard]] bool keeps_second(std::uint64_t item) const { return has(second, item); }

  friend bool operator==(const StoreIndex&, const StoreIndex&) = default;

 private:
  [[nodiscard]] static bool has(const std::vector<std::uint64_t>& bits, std::uint64_t item) {
    return item / 64 < bits.size() && (bits[item / 64] >> (item % 64) & 1) != 0;
  }
};

/// The room of a second copy: whole pages, which can be returned to the system.
[[nodiscard]] constexpr std::uint64_t second_copy_bytes(std::uint64_t size) {
  constexpr std::uint64_t kPage = 4096;
  return (size + kPage - 1) / kPage * kPage;
}

/// The data from which a plan is made.
struct StoreSituation {
  std::span<const std::uint32_t> sizes;        ///< sizes of the items, in bytes
  std::span<const StoreIndex* const> hosts;    ///< the hosts that stay, in an order that all share
  std::size_t self = 0;                        ///< index of the planning host
  std::span<const StoreIndex* const> leavers;  ///< hosts that have left and still serve
  /// Only a host that was in a view with a leaver can copy from it.
  std::function<bool(std::size_t host, std::size_t leaver)> reaches;
  /// The next use of an item, for comparison; items that are used sooner are copied first.
  std::function<std::uint64_t(std::uint64_t item)> next_use;
};

/// An item to copy.
struct StorePull {
  std::uint64_t item = 0;
  std::size_t from = 0;    ///< index among the leavers, or, for a second copy, among the hosts
  bool is_second = false;  ///< to be kept as a second copy

  friend bool operator==(const StorePull&, const StorePull&) = default;
};

struct StorePlan {
  std::vector<std::uint64_t> first;  ///< own second copies that become first copies
  std::vector<StorePull> pulls;      ///< from leavers, or if no item is missing, second copies
  /// Some items that only leavers keep are left for other hosts, or for a later plan of this one.
  bool needs_leavers = false;
};

/// The planning host's share of the items that only leavers keep, for which second copies are given
/// up; if no item is missing, of second copies in free room; up to `bytes_max`. Items are
/// distributed among the hosts that have room for them.
[[nodiscard]] StorePlan plan_copies(const StoreSituation& situation, std::uint64_t bytes_max);

}  // namespace mayfly::datasets
