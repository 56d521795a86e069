#pragma once

// Asks the coordinator, before a worker or a parameter server trains, with which state it should
// start.

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

/// Asks these coordinators with which state a worker should start. Returns a checkpoint, or nothing
/// if the worker's own state is right. kRefused with the coordinator's reason if it is wrong.
///
/// The question is repeated until a coordinator has answered and none is busy, for ten minutes at
/// most. A coordinator is busy if it accepts the connection but sends nothing within `answer_max`,
/// because it sends states to other workers first; the answer of another coordinator may be that of
/// a standby without the state. After ten minutes, or if `gives_up` (called between attempts) is
/// true because this worker should leave, returns nothing. If the question needs a state, the error
/// is then kPeerLost if no coordinator has answered, kAborted if the worker should leave.
[[nodiscard]] Result<std::optional<nn::CheckpointFiles>> ask_for_better_state(
    const std::vector<std::string>& endpoints, ByteSpan token, const TransferQuestion& question,
    const std::function<bool()>& gives_up, Duration answer_max = kTransferIdleMax);

}  // namespace mayfly::engine
