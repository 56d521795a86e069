#pragma once

// Where a worker's trainer stands: what it does, for which step, on which part of it. Its sentinel
// reads this from outside and puts it into heartbeats, so that a worker that hangs can be told from
// one that computes, and whoever waits for it can be told what it hangs in.

#include <cstdint>
#include <string>

#include "base/ids.hpp"

namespace mayfly::elastic {

/// What a worker does. Whoever is in kIdle, kForm, kSync or kExchange waits for others.
enum class Activity : std::uint8_t {
  kIdle = 0,    ///< waits for an order
  kForm,        ///< forms its group
  kSync,        ///< brings its state to that of the view
  kExchange,    ///< waits for an all-reduce
  kLoad,        ///< waits for its data
  kCompute,     ///< forward and backward
  kCommit,      ///< applies an update
  kEvaluate,    ///< computes on test images
  kCheckpoint,  ///< writes its state, or waits for the disk
};
inline constexpr std::size_t kActivities = 9;

/// No microbatch or no bucket.
inline constexpr std::uint32_t kNoPart = UINT32_MAX;

struct WorkerPosition {
  Activity activity = Activity::kIdle;
  Step step{};                         ///< that it works on; 0 = none
  std::uint32_t microbatch = kNoPart;  ///< kLoad, kCompute: which one
  std::uint32_t bucket = kNoPart;      ///< kCompute: that comes next; kExchange: that it waits for
  std::uint64_t moves = 0;             ///< grows with everything that it gets done
  friend bool operator==(const WorkerPosition&, const WorkerPosition&) = default;
};

/// It stands still because of others: never the culprit.
[[nodiscard]] bool waits_for_others(Activity activity);
/// "compute", "exchange", ...; for records.
[[nodiscard]] const char* name_of(Activity activity);
/// A part of a sentence about the worker: "computes microbatch 5 of step 100, bucket 2".
[[nodiscard]] std::string describe(const WorkerPosition& position);

}  // namespace mayfly::elastic
