#pragma once

// The part of a worker's work, loading and computing microbatches, that was done of late: what its
// stages take now, also after it has done other work for hours. Pure; trainer thread only.

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

  /// `done` is all the work of this process so far; of it, returns that of the last one or two
  /// intervals. The period is longer if nothing was loaded or nothing computed in an interval, as
  /// images are loaded ahead: both have microbatches, except before the first.
  [[nodiscard]] WorkDone until(Instant now, const WorkDone& done);

 private:
  WorkDone from_;
  WorkDone mark_;
  Instant marked_at_;
};

}  // namespace mayfly::engine
