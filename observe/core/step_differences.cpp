#include "observe/core/step_differences.hpp"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.hpp"

namespace mayfly::observe {
namespace {

constexpr std::array<const char*, kCells> kKinds = {"compute", "contention", "interconnect", "prep",
                                                    "fetch"};

double mean_of_values(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Half of the interval of the mean.
double half_interval(const std::vector<double>& values, double confidence) {
  if (values.size() < 2) {
    return std::numeric_limits<double>::infinity();
  }
  const double mean = mean_of_values(values);
  const double squares = std::accumulate(
      values.begin(), values.end(), 0.0,
      [mean](double sum, double value) { return sum + (value - mean) * (value - mean); });
  const auto count = static_cast<double>(values.size());
  const boost::math::students_t student(count - 1);
  return boost::math::quantile(student, (1 + confidence) / 2) *
         std::sqrt(squares / (count - 1) / count);
}

}  // namespace

double mean_of(std::span<const CellRound> rounds, Cell cell) {
  ENSURE(!rounds.empty(), "there is a round");
  double sum = 0;
  for (const CellRound& round : rounds) {
    sum += round[static_cast<std::size_t>(cell)];
  }
  return sum / static_cast<double>(rounds.size());
}

std::vector<StepDifference> step_differences(std::span<const CellRound> rounds, double confidence) {
  ENSURE(!rounds.empty() && confidence > 0 && confidence < 1, "there is a round, and a confidence");
  std::vector<StepDifference> differences;
  for (std::size_t cell = 0; cell < kCells; ++cell) {
    std::vector<double> values;
    for (const CellRound& round : rounds) {
      values.push_back(round[cell] - (cell == 0 ? 0 : round[cell - 1]));
    }
    const double mean = mean_of_values(values);
    const double half = half_interval(values, confidence);
    differences.push_back({kKinds[cell], mean, mean - half, mean + half});
  }
  return differences;
}

OtherTools as_other_tools(std::span<const CellRound> rounds, std::size_t samples_per_step) {
  const double exchange = mean_of(rounds, Cell::kExchange);
  const double warm = mean_of(rounds, Cell::kWarm);
  const double reading = mean_of(rounds, Cell::kCold) - warm;
  const double samples = 1000 * static_cast<double>(samples_per_step);
  OtherTools tools;
  tools.stash_interconnect_ms = std::max(0.0, exchange - mean_of(rounds, Cell::kAlone));
  tools.stash_interconnect_share = tools.stash_interconnect_ms / exchange;
  tools.dsa_ingestion = samples / exchange;
  tools.dsa_preparation = samples / warm;
  tools.dsa_fetch = reading > 0 ? std::optional(samples / reading) : std::nullopt;
  tools.dsa_speed = std::min(
      {tools.dsa_ingestion, tools.dsa_preparation, tools.dsa_fetch.value_or(tools.dsa_ingestion)});
  return tools;
}

}  // namespace mayfly::observe
