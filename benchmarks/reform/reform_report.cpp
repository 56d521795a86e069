#include "benchmarks/reform/reform_report.hpp"

#include <fmt/format.h>

#include "base/statistics.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::bench {
namespace {

struct Phase {
  const char* name;
  double ReformTrial::*time;
};
constexpr Phase kPhases[] = {{"heard", &ReformTrial::heard_ms},
                             {"stopped", &ReformTrial::stopped_ms},
                             {"formed", &ReformTrial::formed_ms},
                             {"sum", &ReformTrial::sum_ms},
                             {"known", &ReformTrial::known_ms}};

struct Percentile {
  const char* name;
  double fraction;
};
constexpr Percentile kPercentiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"max", 1.0}};

const char* name_of(bool loss) {
  return loss ? "loss" : "planned";
}

std::vector<double> times_of(const std::vector<ReformTrial>& trials, bool loss,
                             const Phase& phase) {
  std::vector<double> times;
  for (const ReformTrial& trial : trials) {
    if (trial.loss == loss) {
      times.push_back(trial.*phase.time);
    }
  }
  return times;
}

std::string trial_json(const ReformTrial& trial) {
  engine::json::object object;
  object["kind"] = "trial";
  object["change"] = name_of(trial.loss);
  for (const Phase& phase : kPhases) {
    object[std::string(phase.name) + "_ms"] = engine::rounded(trial.*phase.time, 3);
  }
  return engine::json_text(object);
}

std::string row_json(const std::vector<ReformTrial>& trials, bool loss, const std::string& backend,
                     std::uint32_t ranks) {
  engine::json::object object;
  object["kind"] = "row";
  object["change"] = name_of(loss);
  object["backend"] = backend;
  object["ranks"] = ranks;
  object["trials"] = times_of(trials, loss, kPhases[0]).size();
  for (const Phase& phase : kPhases) {
    const std::vector<double> times = times_of(trials, loss, phase);
    for (const Percentile& p : kPercentiles) {
      object[fmt::format("{}_{}_ms", phase.name, p.name)] =
          engine::rounded(percentile(times, p.fraction), 3);
    }
  }
  return engine::json_text(object);
}

}  // namespace

std::string to_json_lines(const std::vector<ReformTrial>& trials, const std::string& backend,
                          std::uint32_t ranks) {
  std::string text;
  for (const ReformTrial& trial : trials) {
    text += trial_json(trial) + "\n";
  }
  for (const bool loss : {true, false}) {
    text += row_json(trials, loss, backend, ranks) + "\n";
  }
  return text;
}

std::string to_text(const std::vector<ReformTrial>& trials, const std::string& backend,
                    std::uint32_t ranks) {
  std::string text = fmt::format(
      "{} members over {}; ms from telling the first of them to the last one's first right sum\n",
      ranks, backend);
  constexpr const char* kRow = "{:<10}{:<10}{:>9}{:>9}{:>9}{:>9}\n";
  text += fmt::format(fmt::runtime(kRow), "change", "phase", "p50", "p90", "p99", "max");
  for (const bool loss : {true, false}) {
    for (const Phase& phase : kPhases) {
      const std::vector<double> times = times_of(trials, loss, phase);
      const auto at = [&times](double fraction) {
        return fmt::format("{:.2f}", percentile(times, fraction));
      };
      text += fmt::format(fmt::runtime(kRow), name_of(loss), phase.name, at(0.5), at(0.9), at(0.99),
                          at(1.0));
    }
  }
  return text;
}

}  // namespace mayfly::bench
