#include "planner/models/loss_bursts.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "base/time.hpp"

namespace mayfly::planner {
namespace {

constexpr double kTogetherS = 120;
constexpr int kIterations = 60;  // the weights hardly change after twenty

/// A loss, and the one before it in its batch.
struct Loss {
  double at_s = 0;
  double gap_s = 0;   // since the one before it
  double alive = 0;   // servers until this loss
  double hazard = 0;  // of one server then, without the batch's level
  double weight = 0;  // probability that one shock caused both; 0 for the first
};

struct Batch {
  std::vector<Loss> losses;  // by time
  double exposure = 0;       // losses that the hazards predict without a level
  double longest_s = 0;
};

double hazard_at(const Numbers& hazards, double age_s) {
  const auto hour = static_cast<std::size_t>(age_s / kSecondsPerHour);
  return hazards.empty() ? 1 / kSecondsPerHour
                         : hazards[std::min(hour, hazards.size() - 1)] / kSecondsPerHour;
}

double exposure_until(const Numbers& hazards, double age_s) {
  double exposure = 0;
  for (double from = 0; from < age_s; from += kSecondsPerHour) {
    exposure += hazard_at(hazards, from) * std::min(kSecondsPerHour, age_s - from);
  }
  return exposure;
}

Batch batch_of(const std::vector<const LifetimeServerRow*>& rows, const Numbers& hazards) {
  Batch batch;
  for (const LifetimeServerRow* row : rows) {
    batch.longest_s = std::max(batch.longest_s, row->lifetime_s);
    batch.exposure += exposure_until(hazards, row->lifetime_s);
    if (row->ended_by == "revoked") {
      batch.losses.push_back({row->lifetime_s});
    }
  }
  std::ranges::sort(batch.losses, {}, &Loss::at_s);
  for (std::size_t i = 0; i < batch.losses.size(); ++i) {
    Loss& loss = batch.losses[i];
    loss.gap_s = i > 0 ? loss.at_s - batch.losses[i - 1].at_s : 0;
    loss.hazard = hazard_at(hazards, loss.at_s);
    loss.alive = static_cast<double>(std::ranges::count_if(
        rows, [&](const LifetimeServerRow* row) { return row->lifetime_s >= loss.at_s; }));
  }
  return batch;
}

std::vector<Batch> batches_of(std::span<const LifetimeServerRow> servers, const Numbers& hazards) {
  using Key = std::tuple<std::string, std::string, std::string, std::string>;
  std::map<Key, std::vector<const LifetimeServerRow*>> rows;
  for (const LifetimeServerRow& row : servers) {
    rows[{row.study, row.gpu, row.zone, row.launched}].push_back(&row);
  }
  std::vector<Batch> batches;
  for (const auto& [key, of_batch] : rows) {
    if (of_batch.size() >= 2) {
      batches.push_back(batch_of(of_batch, hazards));
    }
  }
  return batches;
}

/// One step of expectation maximisation; returns the share of gaps that shocks explain.
double weigh(std::vector<Batch>& batches, double share) {
  double weights = 0;
  double gaps = 0;
  for (Batch& batch : batches) {
    const double by_shocks =
        std::accumulate(batch.losses.begin(), batch.losses.end(), 0.0,
                        [](double sum, const Loss& loss) { return sum + loss.weight; });
    const double alone = static_cast<double>(batch.losses.size()) - by_shocks;
    const double level = batch.exposure > 0 ? alone / batch.exposure : 0;
    for (std::size_t i = 1; i < batch.losses.size(); ++i) {
      Loss& loss = batch.losses[i];
      const double rate = level * loss.hazard * loss.alive;
      const double by_chance = (1 - share) * rate * std::exp(-rate * loss.gap_s);
      const double by_shock = loss.gap_s <= kTogetherS ? share / kTogetherS : 0;
      loss.weight = by_shock > 0 ? by_shock / (by_shock + by_chance) : 0;
      weights += loss.weight;
      gaps += 1;
    }
  }
  return gaps > 0 ? weights / gaps : 0;
}

}  // namespace

LossBursts measure_bursts(std::span<const LifetimeServerRow> servers, const Numbers& hazards) {
  std::vector<Batch> batches = batches_of(servers, hazards);
  double share = 0.5;
  for (int i = 0; i < kIterations; ++i) {
    share = weigh(batches, share);
  }
  double hours = 0, shocks = 0, taken = 0, exposed = 0, losses = 0;
  for (const Batch& batch : batches) {
    hours += batch.longest_s / kSecondsPerHour;
    losses += static_cast<double>(batch.losses.size());
    for (std::size_t first = 0; first < batch.losses.size();) {
      std::size_t last = first + 1;
      double weight = 0;
      while (last < batch.losses.size() && batch.losses[last].gap_s <= kTogetherS) {
        weight += batch.losses[last++].weight;
      }
      if (const auto count = static_cast<double>(last - first); count > 1) {
        const double is_shock = weight / (count - 1);
        shocks += is_shock;
        taken += is_shock * count;
        exposed += is_shock * batch.losses[first].alive;
      }
      first = last;
    }
  }
  LossBursts bursts;
  bursts.batches = static_cast<double>(batches.size());
  bursts.shocks_per_hour = hours > 0 ? shocks / hours : 0;
  bursts.share_taken = exposed > 0 ? taken / exposed : 0;
  bursts.share_of_losses = losses > 0 ? taken / losses : 0;
  return bursts;
}

}  // namespace mayfly::planner
