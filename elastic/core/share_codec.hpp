#pragma once

// How the shares of a view's members are written and read; private to elastic/core. In a large view
// nearly all shares follow on the one before, differ little, and have a rule for the first step:
// runs of them take a few bytes.

#include <vector>

#include "elastic/core/message_codec.hpp"
#include "elastic/core/view.hpp"

namespace mayfly::elastic {

void shares(Encoder& io, const std::vector<ViewDelta::Share>& all);
/// Fails the decoder for anything that the other one does not write.
void shares(Decoder& io, std::vector<ViewDelta::Share>& all);

}  // namespace mayfly::elastic
