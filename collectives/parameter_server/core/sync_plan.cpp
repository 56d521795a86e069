#include "collectives/parameter_server/core/sync_plan.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"

namespace mayfly::parameter_server {

SyncPlan::SyncPlan(std::vector<SyncPhase> phases, std::uint32_t slices_per_step)
    : phases_(std::move(phases)), slices_per_step_(slices_per_step) {
  ENSURE(!phases_.empty() && slices_per_step_ > 0, "a job has phases, and steps have slices");
  for (std::size_t i = 0; i < phases_.size(); ++i) {
    const SyncPhase& phase = phases_[i];
    ENSURE(phase.first < phase.last, "no phase is empty");
    ENSURE(i == 0 || phase.first == phases_[i - 1].last, "phases follow each other");
    ENSURE(phase.slices_per_step > 0 && phase.round > 0 && phase.slices_per_step % phase.round == 0,
           "a step is made of whole rounds");
    ENSURE((phase.last - phase.first) % phase.slices_per_step == 0,
           "phases are made of whole steps");
  }
}

SyncPlan SyncPlan::cut_after(const std::set<std::uint64_t>& steps,
                             const std::set<std::uint64_t>& recorded) const {
  std::set<std::uint64_t> all = steps;
  all.insert(recorded.begin(), recorded.end());
  std::vector<SyncPhase> cut;
  for (SyncPhase rest : phases_) {
    for (auto step = all.upper_bound(rest.first_step);
         step != all.end() && *step < rest.last_step(); ++step) {
      SyncPhase part = rest;
      part.last = rest.first + (*step - rest.first_step) * rest.slices_per_step;
      part.is_recorded = recorded.contains(*step);
      rest.first = part.last;
      rest.first_step = *step;
      cut.push_back(part);
    }
    rest.is_recorded = rest.is_recorded || recorded.contains(rest.last_step());
    cut.push_back(rest);
  }
  return {std::move(cut), slices_per_step_};
}

void SyncPlan::fall_back(const Rewind& rewind) {
  ENSURE(!rewound_ && is_border(rewind.at) && is_border(rewind.to), "steps are undone, once");
  ENSURE(rewind.at > rewind.to && rewind.to >= first_slice(), "at least one step is undone");
  const std::uint64_t step = steps_before(rewind.to);
  const std::uint64_t last_step = phases_.back().last_step();
  std::set<std::uint64_t> recorded;
  for (const SyncPhase& phase : phases_) {
    if (phase.is_recorded && phase.last_step() > step) {
      recorded.insert(phase.last_step());
    }
  }
  std::erase_if(phases_, [&](const SyncPhase& phase) { return phase.first >= rewind.at; });
  phases_.back().last = std::min(phases_.back().last, rewind.at);
  SyncPhase again;
  again.first = rewind.at;
  again.last = rewind.at + (last_step - step) * slices_per_step_;
  again.first_step = step;
  again.slices_per_step = slices_per_step_;
  again.round = slices_per_step_;
  const SyncPlan rest = SyncPlan({again}, slices_per_step_).cut_after({}, recorded);
  phases_.insert(phases_.end(), rest.phases_.begin(), rest.phases_.end());
  phases_[index_of(rewind.at)].restores = true;
  rewound_ = rewind;
}

std::size_t SyncPlan::index_of(std::uint64_t slice) const {
  ENSURE(slice >= first_slice() && slice <= last_slice(), "only slices of the job have a phase");
  const auto after = std::upper_bound(
      phases_.begin(), phases_.end(), slice,
      [](std::uint64_t wanted, const SyncPhase& phase) { return wanted < phase.last; });
  const auto index = static_cast<std::size_t>(after - phases_.begin());
  return std::min(index, phases_.size() - 1);
}

std::uint64_t SyncPlan::version_at(std::uint64_t slice) const {
  std::uint64_t version = 0;
  for (const SyncPhase& phase : phases_) {
    if (slice < phase.first) {
      break;
    }
    const std::uint64_t count = std::min(slice, phase.last) - phase.first;
    version += phase.restores ? 1 : 0;
    switch (phase.policy.kind) {
      case SyncKind::kBsp: version += count / phase.round; break;
      case SyncKind::kAsp:
      case SyncKind::kSsp: version += count; break;
      case SyncKind::kBackup:
        version += (count + phase.policy.needed - 1) / phase.policy.needed;
        break;
    }
  }
  return version;
}

std::uint64_t SyncPlan::round_of(std::uint64_t slice) const {
  const SyncPhase& phase = phase_of(slice);
  return phase.first + (slice - phase.first) / phase.round * phase.round;
}

std::uint64_t SyncPlan::steps_before(std::uint64_t slices) const {
  const SyncPhase& phase = phase_of(slices);
  return phase.first_step + (slices - phase.first) / phase.slices_per_step;
}

bool SyncPlan::is_border(std::uint64_t slice) const {
  const SyncPhase& phase = phase_of(slice);
  return (slice - phase.first) % phase.slices_per_step == 0;
}

bool SyncPlan::is_cut(std::uint64_t slice) const {
  return slice < last_slice() && phase_of(slice).first == slice;
}

double SyncPlan::rate_after(std::uint64_t slices) const {
  const SyncPhase& phase = phase_of(slices);
  const PhaseSettings& settings = phase.settings;
  if (settings.ramp_steps == 0) {
    return settings.rate;
  }
  const double step = static_cast<double>(phase.first_step) +
                      static_cast<double>(slices - phase.first + 1) / phase.slices_per_step;
  const double done = step - static_cast<double>(settings.ramp_first - 1);
  return settings.rate * std::clamp(done / static_cast<double>(settings.ramp_steps), 0.0, 1.0);
}

double rate_factor(RateRule rule, double share, std::uint32_t workers) {
  ENSURE(share > 0 && share <= 1, "an update is made of at most a global batch");
  ENSURE(workers > 0, "somebody computes");
  if (share == 1) {
    return 1;
  }
  switch (rule) {
    case RateRule::kLinear: return share;
    case RateRule::kSqrt: return std::sqrt(share);
    case RateRule::kFixed: return 1;
    case RateRule::kLiveLinear: return 1.0 / workers;
    case RateRule::kLiveSqrt: return 1 / std::sqrt(static_cast<double>(workers));
  }
  UNREACHABLE("every rule has a factor");
}

}  // namespace mayfly::parameter_server
