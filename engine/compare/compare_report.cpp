#include "engine/compare/compare_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/statistics.hpp"
#include "engine/compare/charts_page.hpp"

namespace mayfly::engine {
namespace {

using Names = std::vector<std::string>;

constexpr elastic::Outcome kDone = elastic::Outcome::kDone;

std::vector<const RunResult*> runs_of(const std::vector<RunResult>& results,
                                      const std::string& variant, const std::string& condition) {
  std::vector<const RunResult*> runs;
  for (const RunResult& result : results) {
    if (result.variant == variant && result.condition == condition) {
      runs.push_back(&result);
    }
  }
  return runs;
}

double mean_staleness(const std::vector<const RunResult*>& runs) {
  double sum = 0;
  double updates = 0;
  for (const RunResult* run : runs) {
    for (const auto& [age, count] : run->staleness) {
      sum += static_cast<double>(age * count);
      updates += static_cast<double>(count);
    }
  }
  return updates > 0 ? sum / updates : 0;
}

CompareRow row_of(const std::vector<const RunResult*>& runs) {
  CompareRow row;
  row.variant = runs.front()->variant;
  row.condition = runs.front()->condition;
  row.runs = runs.size();
  std::vector<double> seconds;
  std::vector<double> rates;
  std::vector<double> top1;
  std::vector<double> bytes;
  std::vector<double> redone;
  std::vector<double> hours;
  std::vector<double> recoveries;
  std::vector<const RunResult*> done;
  for (const RunResult* run : runs) {
    if (run->outcome != kDone) {  // the times of a failed run are not comparable
      ++row.failed;
      continue;
    }
    done.push_back(run);
    recoveries.insert(recoveries.end(), run->recoveries_ms.begin(), run->recoveries_ms.end());
    seconds.push_back(run->train_seconds);
    rates.push_back(run->images_per_second);
    bytes.push_back(run->bytes / 1e6);
    redone.push_back(static_cast<double>(run->redone_samples));
    hours.push_back(run->worker_seconds / 3600);
    row.bytes_counted = row.bytes_counted || run->bytes_counted;
    if (run->top1 >= 0) {
      top1.push_back(run->top1);
    }
  }
  row.seconds = spread_of(seconds);
  row.images_per_second = spread_of(rates);
  row.top1 = spread_of(top1);
  row.staleness = mean_staleness(done);
  row.megabytes = spread_of(bytes).mean;
  row.redone = spread_of(redone);
  row.worker_hours = spread_of(hours);
  row.recoveries = recoveries.size();
  row.recovery_ms = median(recoveries);
  return row;
}

std::string with_spread(const Spread& spread, double scale, int digits) {
  if (spread.count == 0) {
    return "-";
  }
  return spread.count == 1 ? fmt::format("{:.{}f}", spread.mean * scale, digits)
                           : fmt::format("{:.{}f} ± {:.{}f}", spread.mean * scale, digits,
                                         spread.deviation * scale, digits);
}

struct Column {
  const char* heading;
  std::string (*cell)(const CompareRow& row, const WorkerPrices& prices);
};

constexpr Column kColumns[] = {
    {"condition", [](const CompareRow& row, const WorkerPrices&) { return row.condition; }},
    {"variant", [](const CompareRow& row, const WorkerPrices&) { return row.variant; }},
    {"runs",
     [](const CompareRow& row, const WorkerPrices&) {
       return row.failed > 0 ? fmt::format("{} ({} failed)", row.runs, row.failed)
                             : std::to_string(row.runs);
     }},
    {"seconds",
     [](const CompareRow& row, const WorkerPrices&) { return with_spread(row.seconds, 1, 1); }},
    {"images/s", [](const CompareRow& row,
                    const WorkerPrices&) { return with_spread(row.images_per_second, 1, 0); }},
    {"accuracy %",
     [](const CompareRow& row, const WorkerPrices&) { return with_spread(row.top1, 100, 2); }},
    {"staleness",
     [](const CompareRow& row, const WorkerPrices&) {
       return row.staleness > 0 ? fmt::format("{:.2f}", row.staleness) : "-";
     }},
    {"MB",
     [](const CompareRow& row, const WorkerPrices&) {
       return row.runs == row.failed
                  ? "-"
                  : fmt::format("{:.0f}{}", row.megabytes, row.bytes_counted ? "" : "*");
     }},
    {"recoveries",
     [](const CompareRow& row, const WorkerPrices&) {
       return row.recoveries > 0 ? fmt::format("{} ({:.0f} ms)", row.recoveries, row.recovery_ms)
                                 : "-";
     }},
    {"samples redone",
     [](const CompareRow& row, const WorkerPrices&) {
       return row.redone.most > 0 ? with_spread(row.redone, 1, 0) : "-";
     }},
    {"worker-hours", [](const CompareRow& row,
                        const WorkerPrices&) { return with_spread(row.worker_hours, 1, 3); }},
};
constexpr Column kPriceColumns[] = {
    {"cost, spot",
     [](const CompareRow& row, const WorkerPrices& prices) {
       return with_spread(row.worker_hours, prices.spot, 3);
     }},
    {"cost, on demand",
     [](const CompareRow& row, const WorkerPrices& prices) {
       return with_spread(row.worker_hours, prices.on_demand, 3);
     }},
};

std::vector<Column> columns_for(const WorkerPrices& prices) {
  std::vector<Column> columns(std::begin(kColumns), std::end(kColumns));
  if (prices.spot > 0) {
    columns.push_back(kPriceColumns[0]);
  }
  if (prices.on_demand > 0) {
    columns.push_back(kPriceColumns[1]);
  }
  return columns;
}

constexpr const char* kComputedBytes =
    "* computed from sizes; all-reduce does not count its bytes\n";

/// Counts characters, not bytes, because the texts contain characters outside ASCII.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

bool any_computed(const std::vector<CompareRow>& rows) {
  return std::any_of(rows.begin(), rows.end(), [](const CompareRow& row) {
    return !row.bytes_counted && row.runs > row.failed;
  });
}

std::optional<ChartBar> bar_of(const Spread& spread) {
  return spread.count == 0 ? std::nullopt
                           : std::optional(ChartBar{spread.mean, spread.least, spread.most});
}

/// One group for each condition, one bar in it for each variant.
template <typename Value>
BarChart bars(const std::string& title, const std::string& label,
              const std::vector<RunResult>& results, const Names& variants, const Names& conditions,
              Value value) {
  BarChart chart{title, label, variants, {}};
  for (const std::string& condition : conditions) {
    BarGroup group{condition, {}};
    for (const std::string& variant : variants) {
      std::vector<double> values;
      for (const RunResult* run : runs_of(results, variant, condition)) {
        if (run->outcome == kDone) {
          value(*run, values);
        }
      }
      group.bars.push_back(bar_of(spread_of(values)));
    }
    chart.groups.push_back(std::move(group));
  }
  return chart;
}

template <typename Points>
LineChart curves(const std::string& title, const std::string& label,
                 const std::vector<RunResult>& results, const Names& variants,
                 const std::string& condition, Points points) {
  LineChart chart{title, "seconds", label, {}};
  for (const std::string& variant : variants) {
    ChartLines lines{variant, {}};
    for (const RunResult* run : runs_of(results, variant, condition)) {
      lines.lines.push_back(points(*run));
    }
    chart.series.push_back(std::move(lines));
  }
  return chart;
}

LineChart staleness_chart(const std::vector<RunResult>& results, const Names& variants,
                          const std::string& condition) {
  LineChart chart{"Staleness, " + condition,
                  "updates between parameters and their use",
                  "share of updates, %",
                  {}};
  for (const std::string& variant : variants) {
    std::map<std::uint64_t, double> counts;
    double all = 0;
    for (const RunResult* run : runs_of(results, variant, condition)) {
      if (run->outcome != kDone) {
        continue;
      }
      for (const auto& [age, count] : run->staleness) {
        counts[age] += static_cast<double>(count);
        all += static_cast<double>(count);
      }
    }
    ChartLines lines{variant, {{}}};
    for (const auto& [age, count] : counts) {
      lines.lines.front().emplace_back(static_cast<double>(age), 100 * count / all);
    }
    chart.series.push_back(std::move(lines));
  }
  return chart;
}

}  // namespace

Spread spread_of(const std::vector<double>& values) {
  Spread spread;
  spread.count = values.size();
  if (values.empty()) {
    return spread;
  }
  spread.mean = mean_of(values);
  spread.deviation = deviation_of(values);
  spread.least = *std::min_element(values.begin(), values.end());
  spread.most = *std::max_element(values.begin(), values.end());
  return spread;
}

std::vector<CompareRow> compare_rows(const std::vector<RunResult>& results, const Names& variants,
                                     const Names& conditions) {
  std::vector<CompareRow> rows;
  for (const std::string& condition : conditions) {
    for (const std::string& variant : variants) {
      const std::vector<const RunResult*> runs = runs_of(results, variant, condition);
      if (!runs.empty()) {
        rows.push_back(row_of(runs));
      }
    }
  }
  return rows;
}

std::string compare_table(const std::vector<CompareRow>& rows, const WorkerPrices& prices) {
  const std::vector<Column> columns = columns_for(prices);
  std::vector<Names> lines(1 + rows.size());
  std::vector<std::size_t> widths;
  for (const Column& column : columns) {
    lines.front().emplace_back(column.heading);
    widths.push_back(width_of(column.heading));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      lines[i + 1].push_back(column.cell(rows[i], prices));
      widths.back() = std::max(widths.back(), width_of(lines[i + 1].back()));
    }
  }
  std::string text;
  for (const Names& line : lines) {
    std::string row;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string space(widths[i] - width_of(line[i]), ' ');
      row += (i == 0 ? "" : "  ") + (i < 2 ? line[i] + space : space + line[i]);
    }
    text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  return text + (any_computed(rows) ? kComputedBytes : "");
}

std::string compare_page(const std::vector<RunResult>& results, const Names& variants,
                         const Names& conditions, const WorkerPrices& prices,
                         const std::string& command) {
  ChartsPage page;
  page.title = "Comparison";
  page.command = command;
  page.table = compare_table(compare_rows(results, variants, conditions), prices);
  page.note =
      "Means ± deviation over seeds; a failed run counts in 'runs' only, and has its lines of "
      "accuracy and loss. One line of a chart is one seed; the range behind a bar is that of the "
      "seeds.";
  for (const std::string& condition : conditions) {
    page.line_charts.push_back(curves("Test accuracy, " + condition, "%", results, variants,
                                      condition, [](const RunResult& run) {
                                        std::vector<ChartPoint> points = run.accuracy;
                                        for (ChartPoint& point : points) {
                                          point.second *= 100;
                                        }
                                        return points;
                                      }));
    page.line_charts.push_back(curves("Training loss, " + condition, "loss", results, variants,
                                      condition, [](const RunResult& run) { return run.loss; }));
    page.line_charts.push_back(staleness_chart(results, variants, condition));
  }
  page.bar_charts.push_back(bars("Training speed", "images/s", results, variants, conditions,
                                 [](const RunResult& run, std::vector<double>& values) {
                                   values.push_back(run.images_per_second);
                                 }));
  page.bar_charts.push_back(bars("Bytes moved (all-reduce: computed)", "MB", results, variants,
                                 conditions, [](const RunResult& run, std::vector<double>& values) {
                                   values.push_back(run.bytes / 1e6);
                                 }));
  page.bar_charts.push_back(bars("From a loss to the next step", "ms", results, variants,
                                 conditions, [](const RunResult& run, std::vector<double>& values) {
                                   values.insert(values.end(), run.recoveries_ms.begin(),
                                                 run.recoveries_ms.end());
                                 }));
  return to_html(page);
}

}  // namespace mayfly::engine
