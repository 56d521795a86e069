#include "engine/compare/switch_search.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.hpp"
#include "base/statistics.hpp"
#include "engine/compare/charts_page.hpp"
#include "engine/compare/compare_report.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::engine {
namespace {

double share_of(const SwitchPoint& point, const SwitchReportFacts& facts) {
  return 100 * static_cast<double>(point.bsp_steps) / static_cast<double>(facts.options.steps);
}

std::string spread_text(const std::vector<double>& values, double scale, int digits) {
  const Spread spread = spread_of(values);
  if (spread.count == 0) {
    return "-";
  }
  const std::string mean = fmt::format("{:.{}f}", scale * spread.mean, digits);
  return spread.count == 1 ? mean
                           : fmt::format("{} +- {:.{}f}", mean, scale * spread.deviation, digits);
}

std::string line_of(const SwitchPoint& point, const SwitchSearch& search,
                    const SwitchReportFacts& facts) {
  const double bsp = search.points().front().mean_seconds();
  const bool has_times = !point.seconds.empty() && bsp > 0;
  const std::string runs = point.failed > 0
                               ? fmt::format("{} + {} failed", point.top1.size(), point.failed)
                               : std::to_string(point.top1.size());
  return fmt::format(
      "{:>8.2f} {:>8} {:>12}  {:>15}  {:>15} {:>9}  {}\n", share_of(point, facts), point.bsp_steps,
      runs, spread_text(point.top1, 100, 2), spread_text(point.seconds, 1, 1),
      has_times ? fmt::format("{:.2f}", point.mean_seconds() / bsp) : "-", to_text(point.verdict));
}

double seconds_spent(const SwitchSearch& search) {
  double sum = 0;
  for (const SwitchPoint& point : search.points()) {
    sum = std::accumulate(point.seconds.begin(), point.seconds.end(), sum + point.failed_seconds);
  }
  return sum;
}

/// The conclusion from the points.
std::string conclusion(const SwitchSearch& search, const SwitchReportFacts& facts) {
  const SwitchPoint& bsp = search.points().front();
  const SwitchPoint& best = search.best();
  if (search.is_void()) {
    return "No run of bsp alone has ended well: there is no target accuracy.\n";
  }
  std::string text;
  if (search.next()) {
    text = "The search is not complete.\n";
  }
  if (&best == &bsp) {
    return text + fmt::format(
                      "No switch to {} kept the accuracy of bsp within {:.2f} points: stay "
                      "in bsp.\n",
                      facts.then, 100 * facts.options.tolerance);
  }
  const double gain = bsp.mean_seconds() - best.mean_seconds();
  text += fmt::format(
      "Switch after {:.4g} % (step {} of {}): {:.2f} % where bsp has {:.2f} %, in {:.2f} of "
      "its time.\n  --phases \"{}\"\n",
      share_of(best, facts), best.bsp_steps, facts.options.steps, 100 * best.mean_top1(),
      100 * bsp.mean_top1(), best.mean_seconds() / bsp.mean_seconds(),
      switch_phases(search, facts));
  if (gain > 0) {
    text += fmt::format("The search trained for {:.0f} s, which {:.0f} later jobs save.\n",
                        seconds_spent(search), std::ceil(seconds_spent(search) / gain));
  }
  return text;
}

LineChart chart_of(const SwitchSearch& search, const SwitchReportFacts& facts, bool accuracy) {
  LineChart chart;
  chart.title = accuracy ? "Test accuracy by the share of bsp" : "Time by the share of bsp";
  chart.x_label = "bsp first, % of the job";
  chart.y_label = accuracy ? "accuracy, %" : "seconds";
  std::vector<const SwitchPoint*> points;
  for (const SwitchPoint& point : search.points()) {
    points.push_back(&point);
  }
  std::sort(points.begin(), points.end(),
            [](const SwitchPoint* a, const SwitchPoint* b) { return a->bsp_steps < b->bsp_steps; });
  ChartLines mean{"mean", {{}}};
  for (const SwitchPoint* point : points) {
    if (!point->top1.empty()) {
      mean.lines.front().emplace_back(share_of(*point, facts),
                                      accuracy ? 100 * point->mean_top1() : point->mean_seconds());
    }
  }
  chart.series.push_back(std::move(mean));
  if (accuracy && !search.is_void()) {
    const double least = 100 * (search.points().front().mean_top1() - facts.options.tolerance);
    chart.series.push_back({"accepted from here on", {{{0, least}, {100, least}}}});
  }
  return chart;
}

}  // namespace

std::string to_text(SwitchVerdict verdict) {
  switch (verdict) {
    case SwitchVerdict::kOpen: return "open";
    case SwitchVerdict::kTarget: return "target";
    case SwitchVerdict::kAccepted: return "accepted";
    case SwitchVerdict::kRejected: return "rejected";
  }
  UNREACHABLE("every verdict has a text");
}

double SwitchPoint::mean_top1() const {
  return mean_of(top1);
}

double SwitchPoint::mean_seconds() const {
  return mean_of(seconds);
}

SwitchSearch::SwitchSearch(const SwitchSearchOptions& options)
    : options_(options), high_(options.steps) {
  ENSURE(options.steps >= 2 && options.runs >= 1, "a job can be switched, and is run");
  points_.push_back({.bsp_steps = options.steps});
}

std::optional<SwitchRun> SwitchSearch::next() const {
  if (over_) {
    return std::nullopt;
  }
  const SwitchPoint& point = points_.back();
  return SwitchRun{point.bsp_steps, options_.first_seed + point.top1.size() + point.failed};
}

/// At every point but the first a single failure rejects the point: a switch after which training
/// may diverge is worse than bsp.
void SwitchSearch::finished(std::optional<double> top1, double seconds) {
  ENSURE(!over_, "a run is requested");
  SwitchPoint& point = points_.back();
  if (top1) {
    point.top1.push_back(*top1);
    point.seconds.push_back(seconds);
  } else {
    ++point.failed;
    point.failed_seconds += seconds;
  }
  const bool is_first = points_.size() == 1;
  if (point.top1.size() + point.failed == options_.runs || (!is_first && point.failed > 0)) {
    judge();
  }
}

void SwitchSearch::judge() {
  SwitchPoint& point = points_.back();
  if (points_.size() == 1) {
    point.verdict = SwitchVerdict::kTarget;
    is_void_ = point.top1.empty();
  } else if (point.failed == 0 &&
             point.mean_top1() >= points_.front().mean_top1() - options_.tolerance) {
    point.verdict = SwitchVerdict::kAccepted;
    high_ = point.bsp_steps;
  } else {
    point.verdict = SwitchVerdict::kRejected;
    low_ = point.bsp_steps;
  }
  try_next();
}

void SwitchSearch::try_next() {
  const std::uint64_t middle = low_ + (high_ - low_) / 2;
  over_ = is_void_ || middle == low_ || points_.size() > options_.probes;
  if (!over_) {
    points_.push_back({.bsp_steps = middle});
  }
}

const SwitchPoint& SwitchSearch::best() const {
  const SwitchPoint* best = &points_.front();
  for (const SwitchPoint& point : points_) {
    const bool is_accepted = point.verdict == SwitchVerdict::kAccepted;
    best = is_accepted && point.bsp_steps < best->bsp_steps ? &point : best;
  }
  return *best;
}

std::string switch_phases(const SwitchSearch& search, const SwitchReportFacts& facts) {
  const SwitchPoint& best = search.best();
  return best.bsp_steps == facts.options.steps
             ? "bsp"
             : fmt::format("bsp:{}steps,{}", best.bsp_steps, facts.then);
}

std::string switch_table(const SwitchSearch& search, const SwitchReportFacts& facts) {
  std::string table = fmt::format("{:>8} {:>8} {:>12}  {:>15}  {:>15} {:>9}  {}\n", "bsp %",
                                  "steps", "runs", "accuracy %", "seconds", "of bsp's", "verdict");
  for (const SwitchPoint& point : search.points()) {
    table += line_of(point, search, facts);
  }
  return table + conclusion(search, facts);
}

std::string switch_page(const SwitchSearch& search, const SwitchReportFacts& facts) {
  ChartsPage page;
  page.title = "When to switch from bsp to " + facts.then;
  page.command = facts.command;
  page.table = switch_table(search, facts);
  page.note = fmt::format(
      "Target: the mean accuracy of {} runs of bsp alone, less {:.2f} points. At most {} points, "
      "each with the same seeds from {} on; a run that fails rejects its point.",
      facts.options.runs, 100 * facts.options.tolerance, facts.options.probes,
      facts.options.first_seed);
  page.line_charts = {chart_of(search, facts, true), chart_of(search, facts, false)};
  return to_html(page);
}

std::string switch_json(const SwitchSearch& search, const SwitchReportFacts& facts) {
  json::array points;
  for (const SwitchPoint& point : search.points()) {
    points.push_back({{"bsp_steps", point.bsp_steps},
                      {"bsp_share", share_of(point, facts) / 100},
                      {"test_top1", value_of(point.top1)},
                      {"train_seconds", value_of(point.seconds)},
                      {"failed", point.failed},
                      {"verdict", to_text(point.verdict)}});
  }
  return json_text({{"steps", facts.options.steps},
                    {"tolerance", facts.options.tolerance},
                    {"runs", facts.options.runs},
                    {"over", !search.next()},
                    {"phases", switch_phases(search, facts)},
                    {"points", points}});
}

}  // namespace mayfly::engine
