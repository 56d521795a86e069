#pragma once

// The protocol by which a member's state is sent to an observer in the background (ADR 16): some
// members, the donors, each copy a part of it while they compute the next step, and send the copies
// over separate connections. This header has what both sides share; state_donor and state_fetch are
// the two sides.
//
//   observer -> donor   PartRequest
//   donor -> observer   PartHeader, then the bytes; or the connection is closed: there is no such
//                       copy, or the key is wrong

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/digest.hpp"
#include "base/ids.hpp"
#include "base/time.hpp"

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
  std::uint64_t bytes = 0;  ///< number of bytes that follow
  Digest digest;            ///< of these bytes
};
static_assert(sizeof(PartHeader) == 32);

inline constexpr std::uint64_t kPartMagic = 0x3130'7472'6170'796dULL;  // "mypart01"

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

}  // namespace mayfly::engine
