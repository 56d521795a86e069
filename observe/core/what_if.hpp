#pragma once

// Predicts the time of a recorded run's steps after a change: more loading threads, images in
// memory, other storage, another number of workers, or without one of them (`mayfly profile
// --what-if`); and recommends the most useful of these changes. Pure; any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "observe/core/run_fold.hpp"
#include "observe/core/step_replay.hpp"

namespace mayfly::observe {

/// Changes that are made together; a field that is not set changes nothing.
struct WhatIf {
  std::optional<std::uint32_t> loaders;  ///< loading threads of each worker
  std::optional<double> cached;          ///< share of the images that is in memory, 0 to 1
  std::optional<double> storage;         ///< bytes per second at which each worker reads
  std::optional<std::uint32_t> workers;  ///< their number, each an average worker
  std::optional<std::uint64_t> without;  ///< this worker is removed; the others share its work
};

/// "loaders=4,cached=50%,storage=20MB/s,workers=6,without=3", in any order and selection. The text
/// of kInvalidInput names the wrong part and shows a correct one.
[[nodiscard]] Result<WhatIf> parse_what_if(const std::string& text);

/// The workers of a run at its end, or now, and its steps.
struct RecordedSteps {
  Pipeline pipeline;        ///< calibrated: computing takes as long as was measured
  double recorded_ms = 0;   ///< mean duration of a step in the records
  double replayed_ms = 0;   ///< that of replay(pipeline)
  double images = 0;        ///< of a step
  double epoch_images = 0;  ///< 0: unknown
  double price = 0;         ///< of a worker and hour; 0: unknown

  /// The expected mean of a step whose replay takes `replay_ms`. Replays are too short, because all
  /// their steps are equal; the error of the unchanged run is assumed in the same proportion.
  [[nodiscard]] double scaled(double replay_ms) const {
    return replay_ms * recorded_ms / replayed_ms;
  }
};

/// The text of kUnsupported names the missing record.
[[nodiscard]] Result<RecordedSteps> recorded_steps(const RunFold& run);

struct WhatIfAnswer {
  double step_ms = 0;
  double images_per_second = 0;
  std::size_t workers = 0;
  std::optional<double> epoch_cost;  ///< in the currency of the prices
};

/// The run without a change.
[[nodiscard]] WhatIfAnswer as_recorded(const RecordedSteps& steps);
/// kInvalidInput: there is no such worker, or the records lack facts that the change needs.
[[nodiscard]] Result<WhatIfAnswer> answer(const RecordedSteps& steps, const WhatIf& change);

struct Advice {
  WhatIf change;
  std::string what;  ///< "2 loading threads per worker"
  WhatIfAnswer answer;
};

/// The change that shortens the step most, in the smallest size that has nearly the same effect:
/// fewest loading threads, smallest share in memory, or removal of a worker. Nothing if no change
/// shortens the step by 3 %.
[[nodiscard]] std::optional<Advice> advice(const RecordedSteps& steps);

}  // namespace mayfly::observe
