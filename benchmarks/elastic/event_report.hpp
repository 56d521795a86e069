#pragma once

// What benchmarks make of events that were each measured in the same quantities. Pure.

#include <boost/json/fwd.hpp>
#include <string>
#include <vector>

namespace mayfly::bench {

/// One quantity over all events, in milliseconds unless its name says otherwise.
struct EventSeries {
  std::string name;  ///< of a JSON field, unit at the end: "detected_ms"
  std::vector<double> values;
};

/// JSON fields that come first in every line.
using JsonFields = boost::json::object;

/// One JSON object of kind "event" per event; every series has as many values as there are events.
[[nodiscard]] std::string event_lines(const std::vector<EventSeries>& series);

/// One JSON object of kind "summary": `facts`, the number of events, then NAME_p50, p90, p99 and
/// max of each series, the unit last: "detected_p50_ms".
[[nodiscard]] std::string summary_line(const JsonFields& facts,
                                       const std::vector<EventSeries>& series);

/// The percentiles for people.
[[nodiscard]] std::string event_table(const std::vector<EventSeries>& series);

}  // namespace mayfly::bench
