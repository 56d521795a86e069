#pragma once

// An engine whose member is late: every operation begins so much later than it could, as if what
// this member sends first took so long to arrive. For experiments with stragglers; changes no bits.

#include <functional>
#include <memory>

#include "base/time.hpp"
#include "collectives/group_engine.hpp"

namespace mayfly::collectives {

/// How late this member is now. Any thread, must not block.
using DelaySource = std::function<Duration()>;

/// `delay` is asked when an operation begins.
[[nodiscard]] std::unique_ptr<GroupEngine> make_delayed_engine(std::unique_ptr<GroupEngine> engine,
                                                               DelaySource delay);

}  // namespace mayfly::collectives
