#include "benchmarks/elastic/event_report.hpp"

#include <fmt/format.h>
#include <algorithm>

#include "base/statistics.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::bench {
namespace {

constexpr std::pair<const char*, double> kPercentiles[] = {
    {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"max", 1.0}};

/// "detected_ms" and "p50" make "detected_p50_ms".
std::string with_percentile(const std::string& name, const char* percentile) {
  const std::size_t unit = name.rfind('_');
  return unit == std::string::npos ? name + "_" + percentile
                                   : name.substr(0, unit) + "_" + percentile + name.substr(unit);
}

std::uint32_t divided_up(std::uint32_t number, std::uint32_t by) {
  return (number + by - 1) / by;
}

}  // namespace

std::string event_lines(const std::vector<EventSeries>& series) {
  std::string text;
  const std::size_t events = series.empty() ? 0 : series.front().values.size();
  for (std::size_t i = 0; i < events; ++i) {
    engine::json::object line;
    line["kind"] = "event";
    line["event"] = i + 1;
    for (const EventSeries& each : series) {
      line[each.name] = engine::rounded(each.values.at(i), 3);
    }
    text += engine::json_text(line) + "\n";
  }
  return text;
}

std::string summary_line(const JsonFields& facts, const std::vector<EventSeries>& series) {
  engine::json::object line;
  line["kind"] = "summary";
  for (const auto& [name, json] : facts) {
    line[name] = json;
  }
  line["events"] = series.empty() ? 0 : series.front().values.size();
  for (const EventSeries& each : series) {
    for (const auto& [name, fraction] : kPercentiles) {
      line[with_percentile(each.name, name)] =
          engine::rounded(percentile(each.values, fraction), 3);
    }
  }
  return engine::json_text(line) + "\n";
}

std::string event_table(const std::vector<EventSeries>& series) {
  std::size_t width = 0;
  for (const EventSeries& each : series) {
    width = std::max(width, each.name.size());
  }
  std::string text =
      fmt::format("{:<{}}{:>10}{:>10}{:>10}{:>10}\n", "", width, "p50", "p90", "p99", "max");
  for (const EventSeries& each : series) {
    text += fmt::format("{:<{}}", each.name, width);
    for (const auto& [name, fraction] : kPercentiles) {
      text += fmt::format("{:>10.1f}", percentile(each.values, fraction));
    }
    text += "\n";
  }
  return text;
}

double least_redo_ms(std::uint32_t microbatches, const StepFacts& facts) {
  const std::uint32_t share = divided_up(microbatches, std::max(1U, facts.survivors));
  const std::uint32_t in_a_row = divided_up(share, std::max(1U, facts.threads));
  const double on_all_cores =
      static_cast<double>(microbatches) / static_cast<double>(std::max(1U, facts.cores));
  return facts.microbatch_ms * std::max(static_cast<double>(in_a_row), on_all_cores);
}

LossTimes times_of(const LossSeen& loss, const StepFacts& facts) {
  const elastic::Recovery& r = loss.recovery;
  const auto since = [&loss](Instant moment) { return to_ms(moment - loss.struck); };
  LossTimes times;
  times.detected_ms = since(r.detected);
  times.told_ms = since(r.told);
  times.stopped_ms = since(r.stopped);
  times.formed_ms = since(r.formed);
  times.synced_ms = since(r.synced);
  times.step_ms = since(r.step);
  const double into_step_ms = to_ms(loss.struck - loss.commit_before);
  const bool has_steps = r.committed > loss.step_before;
  times.steps_meanwhile =
      has_steps ? static_cast<double>(value(r.committed) - value(loss.step_before)) : 0;
  times.still_needed_ms =
      std::max(0.0, facts.undisturbed_ms * (1 + times.steps_meanwhile) - into_step_ms);
  times.redo_ms = has_steps ? 0 : least_redo_ms(r.redone_microbatches, facts);
  times.beyond_ms = times.step_ms - times.still_needed_ms - times.redo_ms;
  return times;
}

}  // namespace mayfly::bench
