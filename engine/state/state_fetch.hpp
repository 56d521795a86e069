#pragma once

// The side that takes the state: one thread receives from all donors at once.

#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "engine/state/state_transfer.hpp"

namespace mayfly::engine {

/// One donor and where its bytes go.
struct WantedPart {
  DonorAddress donor;
  std::span<std::byte> into;
  MemberId member{};  ///< who that is, if it is to be named as the culprit
};

/// Receives every part of the copy (since, key); blocks. kPeerLost if a donor closes its
/// connection (then it is named) or nobody sends anything for `idle_max`, kCorrupt if the bytes are
/// not those it copied or of another size than `into`, kAborted once `stop_fd` is readable.
/// `token`: the job's, which says whether the connections are encrypted.
[[nodiscard]] Result<void> fetch_parts(ViewId since, std::uint64_t key,
                                       const std::vector<WantedPart>& parts, int stop_fd,
                                       Duration idle_max, ByteSpan token = {});

}  // namespace mayfly::engine
