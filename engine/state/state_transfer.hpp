#pragma once

// How a member's state reaches an observer in the background (ADR 16): some members, the donors,
// copy a part of it each while they compute the next step, and send the copies over connections of
// their own. Here is what both sides know; state_donor and state_fetch are the sides.
//
//   observer -> donor   PartRequest
//   donor -> observer   PartHeader, then the bytes; or the connection is closed: no such copy, or
//                       the wrong key

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/digest.hpp"
#include "base/ids.hpp"
#include "base/time.hpp"

namespace mayfly::engine {

/// A side that hears nothing of the other for so long gives it up.
inline constexpr Duration kStateIdleMax = seconds(10);

/// Where a donor listens; has a fixed size because members exchange it within their group.
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
  std::uint64_t bytes = 0;  ///< that follow
  Digest digest;            ///< of them
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

}  // namespace mayfly::engine
