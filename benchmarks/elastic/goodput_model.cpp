#include "benchmarks/elastic/goodput_model.hpp"

#include <algorithm>
#include <numeric>

#include "base/statistics.hpp"

namespace mayfly::bench {

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
  if (measured_.empty()) {
    return {};
  }
  return std::accumulate(measured_.begin(), measured_.end(), 0.0) /
         static_cast<double>(measured_.size());
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
