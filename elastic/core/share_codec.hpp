#pragma once

// Encoding of the shares of a view's members; private to elastic/core. In a large view nearly all
// shares are contiguous, have nearly equal sizes and follow a rule in the first step, so a run of
// them takes a few bytes.

#include <vector>

#include "elastic/core/message_codec.hpp"
#include "elastic/core/view.hpp"

namespace mayfly::elastic {

void shares(Encoder& io, const std::vector<ViewDelta::Share>& all);
/// Fails the decoder for anything that the encoder's function does not write.
void shares(Decoder& io, std::vector<ViewDelta::Share>& all);

}  // namespace mayfly::elastic
