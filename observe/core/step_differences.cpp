#include "observe/core/step_differences.hpp"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.hpp"
#include "base/statistics.hpp"

namespace mayfly::observe {
namespace {

constexpr double kConfidence = 0.95;

/// The cells in the order in which each adds a part to the one before, and the name of that part.
constexpr std::pair<Cell, const char*> kOrder[] = {
    {Cell::kAlone, "compute"}, {Cell::kTogether, "contention"}, {Cell::kExchange, "interconnect"},
    {Cell::kHosts, "network"}, {Cell::kWarm, "prep"},           {Cell::kWhole, "fetch"}};

/// Half of the interval of the mean.
double half_interval(const std::vector<double>& values) {
  if (values.size() < 2) {
    return std::numeric_limits<double>::infinity();
  }
  const auto count = static_cast<double>(values.size());
  const boost::math::students_t student(count - 1);
  return boost::math::quantile(student, (1 + kConfidence) / 2) * deviation_of(values) /
         std::sqrt(count);
}

}  // namespace

double mean_of(std::span<const CellRound> rounds, Cell cell) {
  ENSURE(!rounds.empty(), "there is a round");
  double sum = 0;
  for (const CellRound& round : rounds) {
    sum += round.at(cell);
  }
  return sum / static_cast<double>(rounds.size());
}

std::vector<StepDifference> step_differences(std::span<const CellRound> rounds) {
  ENSURE(!rounds.empty(), "there is a round");
  std::vector<StepDifference> differences;
  std::optional<Cell> before;
  for (const auto& [cell, kind] : kOrder) {
    if (!rounds.front().contains(cell)) {
      continue;
    }
    std::vector<double> values;
    for (const CellRound& round : rounds) {
      values.push_back(round.at(cell) - (before ? round.at(*before) : 0));
    }
    const double mean = mayfly::mean_of(values);
    const double half = half_interval(values);
    const bool has_both = cell == Cell::kWhole && before == Cell::kHosts;
    differences.push_back({has_both ? "data" : kind, mean, mean - half, mean + half});
    before = cell;
  }
  return differences;
}

OtherTools as_other_tools(std::span<const CellRound> rounds, std::size_t samples_per_step) {
  const double exchange = mean_of(rounds, Cell::kExchange);
  OtherTools tools;
  tools.stash_interconnect_ms = std::max(0.0, exchange - mean_of(rounds, Cell::kAlone));
  tools.stash_interconnect_share = tools.stash_interconnect_ms / exchange;
  if (rounds.front().contains(Cell::kHosts)) {
    tools.stash_network_ms = std::max(0.0, mean_of(rounds, Cell::kHosts) - exchange);
    tools.stash_network_share = *tools.stash_network_ms / exchange;
    return tools;
  }
  const double warm = mean_of(rounds, Cell::kWarm);
  const double reading = mean_of(rounds, Cell::kWhole) - warm;
  const double samples = 1000 * static_cast<double>(samples_per_step);
  AnalyzerRates rates{.ingestion = samples / exchange, .preparation = samples / warm};
  rates.fetch = reading > 0 ? std::optional(samples / reading) : std::nullopt;
  rates.speed =
      std::min({rates.ingestion, rates.preparation, rates.fetch.value_or(rates.ingestion)});
  tools.analyzer = rates;
  return tools;
}

}  // namespace mayfly::observe
