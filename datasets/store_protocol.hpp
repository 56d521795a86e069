#pragma once

// How a host requests images of another host's store (ADR 33).
//
//   reader -> host   StoreRequest, then the numbers of its images, a microbatch at once
//   host -> reader   for each in turn a StoreAnswer, then the bytes; size 0: it does not have it
//
// or, with kStoreIndex in place of the number of images, what the host keeps: a StoreAnswer, then
// the words of a StoreIndex: two bits for each image of the set, and the room that is left; or,
// with kStoreOffer, an image for which the reader has no room: a StoreAnswer and the bytes, which
// the host keeps if it has room, and does not answer.
//
// A request carries the key of the reader's view, so a host answers only members of the view that
// it is in, or was in before, because not all begin a view at the same time. A request from a later
// view waits for a moment; any other connection is closed. The answer has the hash that the image
// had when it came from storage, and the reader compares it with what has arrived. Requests may
// follow each other before they are answered. Bytes are not encrypted, like gradients.

#include <cstdint>
#include <span>
#include <vector>

#include "base/digest.hpp"
#include "datasets/core/store_plan.hpp"

namespace mayfly::datasets {

/// The most images of one request.
inline constexpr std::uint32_t kStoreRequestMax = 4096;

/// In place of a number of images.
inline constexpr std::uint32_t kStoreIndex = UINT32_MAX;
inline constexpr std::uint32_t kStoreOffer = UINT32_MAX - 1;

/// The members of a view, who may send requests.
struct StoreKey {
  std::uint64_t view = 0;
  std::uint64_t key = 0;
  friend bool operator==(const StoreKey&, const StoreKey&) = default;
};

struct StoreRequest {
  std::uint64_t magic = 0;
  StoreKey key;
  std::uint32_t images = 0;  ///< at most kStoreRequestMax, or kStoreIndex, or kStoreOffer
  std::uint32_t reserved = 0;
};
static_assert(sizeof(StoreRequest) == 32);

struct StoreAnswer {
  std::uint64_t image = 0;
  std::uint64_t size = 0;  ///< of the bytes that follow
  Digest digest;           ///< hash of the bytes that storage returned
};
static_assert(sizeof(StoreAnswer) == 32);

inline constexpr std::uint64_t kStoreMagic = 0x3130'6572'6f74'736dULL;  // "mstore01"

/// An index in the form in which it is sent.
[[nodiscard]] std::vector<std::uint64_t> words_of(StoreIndex index);
/// The index in these words; their number is even, and at least two.
[[nodiscard]] StoreIndex index_of(std::span<const std::uint64_t> words);

}  // namespace mayfly::datasets
