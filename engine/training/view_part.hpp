#pragma once

// What a member is in the view that it takes part in, and where it stands there. The trainer and
// its state exchange write it; everything else that works for them only reads it.

#include <cstdint>

#include "base/ids.hpp"

namespace mayfly::engine {

struct ViewPart {
  Rank rank{};
  bool is_reporter = false;  ///< it speaks for all members of the view
  bool observes = false;     ///< it lacks the state that the others have
  std::uint64_t steps = 0;   ///< committed in this view
  Step position{};  ///< the last committed step of the view; that of the state, unless it observes

  [[nodiscard]] bool is_first_step() const { return steps == 0; }
};

}  // namespace mayfly::engine
