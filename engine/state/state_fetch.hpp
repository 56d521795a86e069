#pragma once

// The receiving side of a state transfer: one thread receives from all donors at once. Any thread.

#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "engine/state/state_transfer.hpp"

namespace mayfly::engine {

/// A donor, and the memory for its bytes.
struct WantedPart {
  DonorAddress donor;
  std::span<std::byte> into;
  MemberId member{};  ///< the donor, to be named as the culprit; 0 = not to be named
};

/// Receives every part of the copy (since, key); blocks. kPeerLost if a donor closes its
/// connection (then it is named) or no donor sends anything for `idle_max`, kCorrupt if the bytes
/// are not those that it copied or are of another size than `into`, kAborted once `stop_fd` is
/// readable. `token`: the job's, which decides whether the connections are encrypted.
[[nodiscard]] Result<void> fetch_parts(ViewId since, std::uint64_t key,
                                       const std::vector<WantedPart>& parts, int stop_fd,
                                       Duration idle_max, ByteSpan token = {});

}  // namespace mayfly::engine
