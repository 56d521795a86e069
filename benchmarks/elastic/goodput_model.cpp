#include "benchmarks/elastic/goodput_model.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <set>

#include "base/parse.hpp"
#include "base/statistics.hpp"

namespace mayfly::bench {
namespace {

Error wrong(std::size_t line, const std::string& what) {
  return {Errc::kInvalidInput, fmt::format("line {}: {}", line, what)};
}

Result<SpotRow> parse_row(std::string_view line, std::size_t number) {
  const std::vector<std::string_view> fields = split(line, ',');
  if (fields.size() != 3) {
    return wrong(number, fmt::format("'{}' is not MILLISECONDS,add|remove,NODE", line));
  }
  SpotRow row;
  const auto ms = number_in<decltype(row.ms)>(fields[0]);
  if (!ms) {
    return wrong(number, fmt::format("'{}' is not a number of milliseconds", fields[0]));
  }
  if (fields[1] != "add" && fields[1] != "remove") {
    return wrong(number, fmt::format("'{}' is neither add nor remove", fields[1]));
  }
  if (fields[2].empty()) {
    return wrong(number, "the node has no name");
  }
  row.ms = *ms;
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

Rates::Rates(const std::vector<LoggedStep>& steps) {
  std::map<std::uint32_t, std::uint64_t> samples;
  for (const LoggedStep& step : steps) {
    samples[step.members] = step.samples;
  }
  for (const auto& [members, per_step] : samples) {
    const double ms = undisturbed_ms(steps, members);
    if (ms > 0) {
      rates_[members] = static_cast<double>(per_step) * 1e3 / ms;
    }
  }
}

double Rates::at(std::uint32_t members) const {
  if (rates_.empty() || members == 0) {
    return 0;
  }
  const auto above = rates_.upper_bound(members);
  return above == rates_.begin() ? above->second : std::prev(above)->second;
}

double ideal_samples(const std::vector<AliveSince>& alive, const Rates& rates, Instant begin,
                     Instant end) {
  double samples = 0;
  for (std::size_t i = 0; i < alive.size(); ++i) {
    const Instant from = std::max(begin, alive[i].when);
    const Instant to = i + 1 < alive.size() ? std::min(end, alive[i + 1].when) : end;
    if (from < to) {
      samples += to_seconds(to - from) * rates.at(alive[i].workers);
    }
  }
  return samples;
}

std::optional<double> stall_seconds(const elastic::Recovery& recovery,
                                    const std::vector<LoggedStep>& steps) {
  const auto first = std::find_if(steps.begin(), steps.end(), [&](const LoggedStep& step) {
    return step.view == value(recovery.new_view);
  });
  if (first == steps.end() || first == steps.begin()) {
    return {};
  }
  const double usual_ms = undisturbed_near_ms(steps, first->members, first->step);
  if (usual_ms == 0) {
    return {};
  }
  const double took_ms = to_ms(first->heard - std::prev(first)->heard);
  return std::max(0.0, took_ms - usual_ms) / 1e3;
}

void Stalls::add(std::optional<double> seconds) {
  if (seconds) {
    measured_.push_back(*seconds);
  } else {
    ++unmeasured_;
  }
}

std::optional<double> Stalls::mean_seconds() const {
  return measured_.empty() ? std::nullopt : std::optional(mean_of(measured_));
}

std::optional<double> Stalls::p99_seconds() const {
  return measured_.empty() ? std::nullopt : std::optional(percentile(measured_, 0.99));
}

std::optional<double> natural_goodput(const std::vector<SpotLevel>& market,
                                      std::optional<double> loss_stall_s,
                                      std::optional<double> join_stall_s) {
  if (market.size() < 2 || market.back().ms == market.front().ms) {
    return 1;
  }
  double stalled = 0;
  for (std::size_t i = 1; i < market.size(); ++i) {  // the first level is the start
    const std::optional<double>& stall_s = market[i].lost ? loss_stall_s : join_stall_s;
    if (!stall_s) {
      return {};
    }
    stalled += *stall_s;
  }
  const double seconds = static_cast<double>(market.back().ms - market.front().ms) / 1e3;
  return std::max(0.0, 1 - stalled / seconds);
}

}  // namespace mayfly::bench
