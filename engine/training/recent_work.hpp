#pragma once

// The work of a worker, loading and computing microbatches, in the last few seconds: it shows how
// long these stages take now, even if they took a different time for hours before. Pure; trainer
// thread only.

#include "base/time.hpp"
#include "datasets/feed.hpp"
#include "engine/training/computer.hpp"

namespace mayfly::engine {

/// Work of one period.
struct WorkDone {
  datasets::LoaderWork loaded;
  ComputeWork computed;
};

class RecentWork {
 public:
  static constexpr Duration kInterval = milliseconds(2000);

  /// Returns the work of the last one or two intervals; `done` is all the work of this process so
  /// far. The period is extended if nothing was loaded or nothing computed in an interval, because
  /// images are loaded ahead: the result contains loaded and computed microbatches, except before
  /// the first ones.
  [[nodiscard]] WorkDone until(Instant now, const WorkDone& done);

 private:
  WorkDone from_;
  WorkDone mark_;
  Instant marked_at_;
};

}  // namespace mayfly::engine
