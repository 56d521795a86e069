#pragma once

// Tables of comma-separated values, as in RFC 4180: a line of column names, then one row a line;
// fields may be quoted. Pure; any thread.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace mayfly::planner {

struct CsvRow {
  std::size_t line = 0;  ///< of the file, from 1
  std::vector<std::string> fields;
};

struct CsvTable {
  std::vector<std::string> columns;
  std::vector<CsvRow> rows;
};

/// Splits a text into rows that have as many fields as there are columns. Empty lines are skipped.
/// kInvalidInput with file and line for a quote that does not end, a missing or surplus field, a
/// column without a name or with that of another, a text that is not UTF-8 or has no line at all.
[[nodiscard]] Result<CsvTable> parse_csv(const std::string& file, std::string_view text);

}  // namespace mayfly::planner
