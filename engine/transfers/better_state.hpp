#pragma once

// What a worker or a parameter server is to start with, asked before it takes part.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "engine/transfers/checkpoint_transfer.hpp"
#include "nn/checkpoint_files.hpp"

namespace mayfly::engine {

/// Asks these coordinators what a worker should start with: a checkpoint, or nothing if what it has
/// is right. Again for up to a minute as long as none answers, and `gives_up` (asked in between)
/// does not say that this worker is to leave; then nothing. For up to ten minutes as long as one is
/// connected and does not answer within `answer_max`: it gives the state to others first, and what
/// another one says may be said by a standby that knows of nothing. If the question needs a state,
/// for up to ten minutes in any case; then kPeerLost, or kAborted if it is to leave. kRefused with
/// the coordinator's reason if what it has is wrong.
[[nodiscard]] Result<std::optional<nn::CheckpointFiles>> ask_for_better_state(
    const std::vector<std::string>& endpoints, ByteSpan token, const TransferQuestion& question,
    const std::function<bool()>& gives_up, Duration answer_max = kTransferIdleMax);

}  // namespace mayfly::engine
