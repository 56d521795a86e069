#pragma once

// What a search for the moment of a switch says: a table, a sentence and two plots. Pure; no thread
// matters.

#include <map>
#include <string>

#include "engine/compare/switch_search.hpp"

namespace mayfly::engine {

/// What the report says besides the points.
struct SwitchReportFacts {
  SwitchSearchOptions options;
  std::string then = "asp";  ///< what follows bsp
  std::string command;
};

/// For a terminal: a line for each point, and what follows from them.
[[nodiscard]] std::string switch_table(const SwitchSearch& search, const SwitchReportFacts& facts);
/// report.md and the plots that it shows, by file name.
[[nodiscard]] std::map<std::string, std::string> switch_page(const SwitchSearch& search,
                                                             const SwitchReportFacts& facts);
/// The phases that the search came to, as --phases takes them.
[[nodiscard]] std::string switch_phases(const SwitchSearch& search, const SwitchReportFacts& facts);
/// All of it as one JSON object.
[[nodiscard]] std::string switch_json(const SwitchSearch& search, const SwitchReportFacts& facts);

}  // namespace mayfly::engine
