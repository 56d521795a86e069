#include "planner/calibration/csv.hpp"

#include <algorithm>
#include <optional>

#include "base/parse.hpp"
#include "base/text.hpp"

namespace mayfly::planner {
namespace {

Error csv_error(const std::string& file, std::size_t line, const std::string& what) {
  return {Errc::kInvalidInput, file + ":" + std::to_string(line) + ": " + what};
}

/// The fields of one line; nothing if a quote does not end where a field does.
std::optional<std::vector<std::string>> fields_of(std::string_view line) {
  std::vector<std::string> fields(1);
  bool is_quoted = false;
  bool was_quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (is_quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += c;
      ++i;
    } else if (c == '"' && (is_quoted || (fields.back().empty() && !was_quoted))) {
      was_quoted = true;
      is_quoted = !is_quoted;
    } else if (c == ',' && !is_quoted) {
      fields.emplace_back();
      was_quoted = false;
    } else if (was_quoted && !is_quoted) {
      return std::nullopt;
    } else {
      fields.back() += c;
    }
  }
  if (is_quoted) {
    return std::nullopt;
  }
  for (std::string& field : fields) {
    field = std::string(trimmed(field));
  }
  return fields;
}

Result<void> check_columns(const std::string& file, std::size_t line,
                           const std::vector<std::string>& columns) {
  for (auto column = columns.begin(); column != columns.end(); ++column) {
    if (column->empty()) {
      return csv_error(file, line, "a column has no name");
    }
    if (std::find(columns.begin(), column, *column) != column) {
      return csv_error(file, line, "two columns are named " + *column);
    }
  }
  return {};
}

}  // namespace

Result<CsvTable> parse_csv(const std::string& file, std::string_view text) {
  if (!is_utf8(text)) {
    return Error{Errc::kInvalidInput, file + ": not a text in UTF-8"};
  }
  CsvTable table;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = trimmed(text.substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (line.empty()) {
      continue;
    }
    std::optional<std::vector<std::string>> fields = fields_of(line);
    if (!fields) {
      return csv_error(file, number, "a quote is not closed at the end of its field");
    }
    if (table.columns.empty()) {
      TRY(check_columns(file, number, *fields));
      table.columns = std::move(*fields);
    } else if (fields->size() != table.columns.size()) {
      return csv_error(file, number,
                       std::to_string(fields->size()) + " fields instead of " +
                           std::to_string(table.columns.size()));
    } else {
      table.rows.push_back({number, std::move(*fields)});
    }
  }
  if (table.columns.empty()) {
    return Error{Errc::kInvalidInput, file + ": has no line with the names of columns"};
  }
  return table;
}

}  // namespace mayfly::planner
