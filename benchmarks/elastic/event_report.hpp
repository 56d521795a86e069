#pragma once

// The figures of benchmarks of elasticity: for one loss, and for events for which the same
// quantities were measured. Pure.

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "elastic/core/coordinator.hpp"

namespace mayfly::bench {

/// One quantity over all events, in milliseconds unless its name says otherwise.
struct EventSeries {
  std::string name;  ///< of the JSON field, with the unit at the end: "detected_ms"
  std::vector<double> values;
};

/// JSON fields at the beginning of every line.
using JsonFields = boost::json::object;

/// One JSON object of kind "event" per event; every series has as many values as there are events.
[[nodiscard]] std::string event_lines(const std::vector<EventSeries>& series);

/// One JSON object of kind "summary": `facts`, the number of events, then NAME_p50, p90, p99 and
/// max of each series, the unit last: "detected_p50_ms".
[[nodiscard]] std::string summary_line(const JsonFields& facts,
                                       const std::vector<EventSeries>& series);

/// The percentiles as a table.
[[nodiscard]] std::string event_table(const std::vector<EventSeries>& series);

/// The instants of one loss, on one clock.
struct LossSeen {
  Instant struck;         ///< just before the fault was caused
  Instant commit_before;  ///< the last commit that the coordinator had received before
  Step step_before{};     ///< step of that commit
  elastic::Recovery recovery;
};

/// The cost of the same step without the loss, and the least work that must be computed again.
struct StepFacts {
  double undisturbed_ms = 0;  ///< median step with all workers, measured in the same run
  double microbatch_ms = 0;   ///< one microbatch on one thread of an idle machine, measured before
  std::uint32_t survivors = 1;
  std::uint32_t threads = 1;  ///< of each worker
  std::uint32_t cores = 1;
};

/// Milliseconds since the fault, unless said otherwise.
struct LossTimes {
  double detected_ms = 0, told_ms = 0, stopped_ms = 0, formed_ms = 0, synced_ms = 0;
  double step_ms = 0;          ///< first commit of the next view: the raw figure
  double steps_meanwhile = 0;  ///< committed after the fault, but before the next view
  double still_needed_ms = 0;  ///< time to this step's commit without a fault
  double redo_ms = 0;          ///< least time to compute the lost microbatches again; 0 if the step
                               ///< had not begun when the fault came
  double beyond_ms = 0;        ///< step - still_needed - redo; below zero where recovering overlaps
                               ///< with computing
};

/// Computing the lost microbatches again takes at least as long as the share of one survivor's
/// threads, and at least as long as all of them on all cores. `redo_ms` is this least time, so it
/// never makes a recovery look faster than it was.
[[nodiscard]] double least_redo_ms(std::uint32_t microbatches, const StepFacts& facts);

[[nodiscard]] LossTimes times_of(const LossSeen& loss, const StepFacts& facts);

}  // namespace mayfly::bench
