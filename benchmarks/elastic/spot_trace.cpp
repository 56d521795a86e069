#include "benchmarks/elastic/spot_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

namespace mayfly::bench {
namespace {

Error wrong(std::size_t line, const std::string& what) {
  return {Errc::kInvalidInput, fmt::format("line {}: {}", line, what)};
}

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  while (true) {
    const std::size_t comma = line.find(',');
    fields.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) {
      return fields;
    }
    line.remove_prefix(comma + 1);
  }
}

Result<SpotRow> parse_row(std::string_view line, std::size_t number) {
  const std::vector<std::string_view> fields = fields_of(line);
  if (fields.size() != 3) {
    return wrong(number, fmt::format("'{}' is not MILLISECONDS,add|remove,NODE", line));
  }
  SpotRow row;
  const char* end = fields[0].data() + fields[0].size();
  const auto parsed = std::from_chars(fields[0].data(), end, row.ms);
  if (fields[0].empty() || parsed.ec != std::errc() || parsed.ptr != end) {
    return wrong(number, fmt::format("'{}' is not a number of milliseconds", fields[0]));
  }
  if (fields[1] != "add" && fields[1] != "remove") {
    return wrong(number, fmt::format("'{}' is neither add nor remove", fields[1]));
  }
  if (fields[2].empty()) {
    return wrong(number, "the node has no name");
  }
  row.add = fields[1] == "add";
  row.node = fields[2];
  return row;
}

}  // namespace

Result<std::vector<SpotRow>> parse_spot_trace(std::string_view text) {
  std::vector<SpotRow> rows;
  std::set<std::string> present;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (line.empty() || line.front() == '#') {
      continue;
    }
    Result<SpotRow> row = parse_row(line, number);
    if (!row.ok()) {
      return std::move(row).error();
    }
    if (!rows.empty() && row.value().ms < rows.back().ms) {
      return wrong(number, fmt::format("{} ms is before the row above", row.value().ms));
    }
    const bool known = present.count(row.value().node) != 0;
    if (row.value().add == known) {
      return wrong(number, known ? fmt::format("node {} is there already", row.value().node)
                                 : fmt::format("there is no node {}", row.value().node));
    }
    if (row.value().add) {
      present.insert(row.value().node);
    } else {
      present.erase(row.value().node);
    }
    rows.push_back(std::move(row).value());
  }
  if (rows.empty()) {
    return Error{Errc::kInvalidInput, "the trace has no rows"};
  }
  return rows;
}

std::vector<SpotLevel> levels_of(const std::vector<SpotRow>& rows) {
  std::vector<SpotLevel> levels;
  std::uint32_t nodes = 0;
  for (const SpotRow& row : rows) {
    nodes = row.add ? nodes + 1 : nodes - 1;
    if (levels.empty() || levels.back().ms != row.ms) {
      levels.push_back({row.ms, nodes, false});
    }
    levels.back().nodes = nodes;
    levels.back().lost = levels.back().lost || !row.add;
  }
  return levels;
}

std::vector<SpotLevel> scaled(const std::vector<SpotLevel>& levels, std::uint32_t nodes_max) {
  std::uint32_t peak = 1;
  for (const SpotLevel& level : levels) {
    peak = std::max(peak, level.nodes);
  }
  const std::uint32_t most = std::min(nodes_max, peak);
  std::vector<SpotLevel> smaller;
  for (const SpotLevel& level : levels) {
    const std::uint64_t doubled = std::uint64_t{2} * level.nodes * most + peak;
    const auto nodes =
        std::max(1U, static_cast<std::uint32_t>(doubled / (std::uint64_t{2} * peak)));
    if (smaller.empty() || smaller.back().nodes != nodes) {
      smaller.push_back({level.ms, nodes, !smaller.empty() && nodes < smaller.back().nodes});
    }
  }
  return smaller;
}

}  // namespace mayfly::bench
