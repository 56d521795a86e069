#include "cli/status_table.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <vector>

namespace mayfly::cli {
namespace {

namespace json = boost::json;

std::string shown(const json::value& value) {
  if (value.is_string()) {
    return std::string(value.as_string());
  }
  if (value.is_double()) {
    return fmt::format("{:.6g}", value.as_double());
  }
  return value.is_null() ? "-" : json::serialize(value);
}

bool is_table(const json::value& value) {
  return value.is_array() && !value.as_array().empty() && value.as_array().front().is_object();
}

/// Rows of equal length, columns as wide as their widest cell.
std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += fmt::format(" {:<{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

/// Columns are the fields of the first object.
std::string table(const json::array& objects) {
  std::vector<std::vector<std::string>> rows(1);
  for (const auto& field : objects.front().as_object()) {
    rows[0].emplace_back(field.key());
  }
  for (const json::value& object : objects) {
    std::vector<std::string> row;
    for (const std::string& column : rows[0]) {
      const json::value* cell =
          object.is_object() ? object.as_object().if_contains(column) : nullptr;
      row.push_back(cell == nullptr ? "-" : shown(*cell));
    }
    rows.push_back(std::move(row));
  }
  return aligned(rows);
}

}  // namespace

Result<std::string> status_table(std::string_view text) {
  json::error_code failure;
  const json::value parsed = json::parse(json::string_view(text.data(), text.size()), failure);
  if (failure || !parsed.is_object()) {
    return Error{Errc::kCorrupt, "the coordinator's answer is not a JSON object"};
  }
  std::string plain;
  std::string tables;
  for (const auto& field : parsed.as_object()) {
    const std::string name(field.key());
    if (is_table(field.value())) {
      tables += name + "\n" + table(field.value().as_array());
    } else {
      plain += fmt::format("{:<18}{}\n", name, shown(field.value()));
    }
  }
  return plain + tables;
}

}  // namespace mayfly::cli
