#pragma once

namespace mayfly::engine {

/// From now on the calling thread runs when compute threads leave something over. For good: a
/// process without privileges cannot take it back.
void run_with_low_priority();

}  // namespace mayfly::engine
