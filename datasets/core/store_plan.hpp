#pragma once

// What one of several hosts copies from the stores of others, so that images outlive the hosts that
// keep them (ADR 33). Every host plans for itself, from what all say that they keep: they agree on
// who copies what because they order each other in the same way. Where they were told different
// things, an item is copied by two of them or in a later plan. Pure; any thread.
//
// A host keeps an item as a first copy, for as long as the host is there, or as a second one, which
// it gives up when it needs the room for an item that no host keeps. A plan makes second copies
// only while the hosts keep all items, and turns a second copy into a first one when no other host
// has one. So no item is given up that another host does not keep for good.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace mayfly::datasets {

/// What the store of one host keeps, as it tells others.
struct StoreIndex {
  std::vector<std::uint64_t> kept;    ///< item i: bit i % 64 of word i / 64
  std::vector<std::uint64_t> second;  ///< those of them that are second copies, likewise
  std::uint64_t free = 0;             ///< bytes of its room that nothing takes up
  std::uint64_t spare = 0;            ///< bytes of its room that second copies take up

  [[nodiscard]] static std::uint64_t words(std::uint64_t items) { return (items + 63) / 64; }
  [[nodiscard]] bool keeps(std::uint64_t item) const { return has(kept, item); }
  [[nodiscard]] bool keeps_second(std::uint64_t item) const { return has(second, item); }

  friend bool operator==(const StoreIndex&, const StoreIndex&) = default;

 private:
  [[nodiscard]] static bool has(const std::vector<std::uint64_t>& bits, std::uint64_t item) {
    return item / 64 < bits.size() && (bits[item / 64] >> (item % 64) & 1) != 0;
  }
};

/// What a second copy takes up: whole pages, which can be returned to the system.
[[nodiscard]] constexpr std::uint64_t second_copy_bytes(std::uint64_t size) {
  constexpr std::uint64_t kPage = 4096;
  return (size + kPage - 1) / kPage * kPage;
}

/// What a plan is made from.
struct StoreSituation {
  std::span<const std::uint32_t> sizes;        ///< of the items, in bytes
  std::span<const StoreIndex* const> hosts;    ///< that stay, in an order that all share
  std::size_t self = 0;                        ///< which of them plans
  std::span<const StoreIndex* const> leavers;  ///< hosts that have left and still serve
  /// Only a host that was in a view with a leaver can copy from it.
  std::function<bool(std::size_t host, std::size_t leaver)> reaches;
  /// When an item is used next, to compare; items that are used sooner are copied first.
  std::function<std::uint64_t(std::uint64_t item)> next_use;
};

/// An item to copy.
struct StorePull {
  std::uint64_t item = 0;
  std::size_t from = 0;    ///< which of the leavers, or of the hosts for a second copy
  bool is_second = false;  ///< to keep as a second copy

  friend bool operator==(const StorePull&, const StorePull&) = default;
};

struct StorePlan {
  std::vector<std::uint64_t> first;  ///< own second copies that are first ones from now on
  std::vector<StorePull> pulls;      ///< from leavers, or if no item is missing, second copies
  /// Items that only leavers keep are left for other hosts, or for a later plan of this one.
  bool needs_leavers = false;
};

/// The planning host's share of the items that only leavers keep, for which second copies are given
/// up, then of second copies in spare room; up to `bytes_max`. Items take turns among the hosts
/// that have room for them.
[[nodiscard]] StorePlan plan_copies(const StoreSituation& situation, std::uint64_t bytes_max);

}  // namespace mayfly::datasets
