#include "elastic/core/speed_judge.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <vector>

#include "base/check.hpp"
#include "elastic/core/assignment.hpp"

namespace mayfly::elastic {
namespace {

constexpr int kJudgementsPerSample = 5;  // the speeds do not change more often

std::string describe(const Rebalance& change, const std::vector<Load>& loads) {
  std::string text =
      fmt::format("{:.1f} ms of the slowest become {:.1f}", change.before_ms, change.after_ms);
  text += "; microbatches";
  for (const Load& load : loads) {
    text += ' ' + std::to_string(load.count);
  }
  text += " become";
  for (const std::uint32_t count : change.counts) {
    text += ' ' + std::to_string(count);
  }
  return text;
}

/// Changes that follow each other within so many intervals have not had their predicted effect.
constexpr int kFrequentIntervals = 4;

float slowest(const std::vector<float>& times, const std::vector<std::uint32_t>& counts) {
  float most = 0;
  for (std::size_t rank = 0; rank < times.size(); ++rank) {
    most = std::max(most, times[rank] * static_cast<float>(counts[rank]));
  }
  return most;
}

constexpr int kDoublingsMax = 10;

/// The lower median of the known times of all other members; 0 = there are none.
float others_median(const std::vector<Runner>& runners, MemberId self) {
  std::vector<float> times;
  for (const Runner& runner : runners) {
    if (runner.member != self && runner.microbatch_ms > 0) {
      times.push_back(runner.microbatch_ms);
    }
  }
  if (times.empty()) {
    return 0;
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace

std::optional<MemberId> StragglerPolicy::judge(Instant now, const std::vector<Runner>& runners) {
  if (!(options_.factor > 0)) {
    return std::nullopt;
  }
  std::map<MemberId, Instant> slow;
  const Runner* worst = nullptr;
  for (const Runner& runner : runners) {
    const float median = others_median(runners, runner.member);
    const bool is_slow = median > 0 && runner.microbatch_ms >= options_.factor * median;
    if (!is_slow) {
      continue;
    }
    const auto before = slow_since_.find(runner.member);
    const Instant since = before == slow_since_.end() ? now : before->second;
    slow.emplace(runner.member, since);
    if (now - since >= patience(runner.host) &&
        (worst == nullptr || runner.microbatch_ms > worst->microbatch_ms)) {
      worst = &runner;
    }
  }
  slow_since_ = std::move(slow);
  return worst == nullptr ? std::nullopt : std::optional(worst->member);
}

void StragglerPolicy::skip(Duration time) {
  for (auto& [member, since] : slow_since_) {
    since = since + time;
  }
}

void StragglerPolicy::drained(const Runner& runner) {
  slow_since_.erase(runner.member);
  ++drained_of_host_[runner.host];
}

Duration StragglerPolicy::patience(const std::string& host) const {
  const auto place = drained_of_host_.find(host);
  const int times = place == drained_of_host_.end() ? 0 : std::min(place->second, kDoublingsMax);
  return options_.after * (1 << times);
}

std::optional<Rebalance> Rebalancer::worthwhile(const std::vector<Load>& loads) const {
  std::vector<float> times;
  std::vector<std::uint32_t> counts;
  std::uint32_t microbatches = 0;
  for (const Load& load : loads) {
    if (!(load.microbatch_ms > 0)) {
      return std::nullopt;
    }
    times.push_back(load.microbatch_ms);
    counts.push_back(load.count);
    microbatches += load.count;
  }
  if (loads.size() < 2 || microbatches == 0) {
    return std::nullopt;
  }
  Rebalance change;
  for (const MicrobatchRange& range : proportional_ranges(times, microbatches)) {
    change.counts.push_back(range.count);
  }
  change.before_ms = slowest(times, counts);
  change.after_ms = slowest(times, change.counts);
  const double gain = 1.0 - static_cast<double>(change.after_ms) / change.before_ms;
  const bool is_repaid = gain * to_seconds(options_.repaid_within) >= to_seconds(cost_);
  return gain >= options_.gain_min && is_repaid ? std::optional(std::move(change)) : std::nullopt;
}

std::optional<Rebalance> Rebalancer::judge(Instant now, const std::vector<Load>& loads) {
  if (!options_.enabled) {
    return std::nullopt;
  }
  std::optional<Rebalance> change = worthwhile(loads);
  if (!change) {
    seen_since_.reset();
    return std::nullopt;
  }
  if (!seen_since_) {
    seen_since_ = now;
  }
  const bool is_too_soon = changed_at_ && now - *changed_at_ < interval_;
  if (now - *seen_since_ < options_.sustained || is_too_soon) {
    return std::nullopt;
  }
  changed(now);
  return change;
}

void Rebalancer::skip(Duration time) {
  if (seen_since_) {
    seen_since_ = *seen_since_ + time;
  }
}

void Rebalancer::changed(Instant now) {
  const bool is_frequent = changed_at_ && now - *changed_at_ < kFrequentIntervals * interval_;
  interval_ = is_frequent ? std::min(2 * interval_, options_.interval_max) : options_.interval;
  changed_at_ = now;
  seen_since_.reset();
}

SpeedJudge::SpeedJudge(const CoordinatorOptions& options)
    : speed_sample_(options.speed_sample),
      workers_min_(std::max<std::size_t>(options.min_workers, 1)),
      rebalancer_(options.rebalance),
      stragglers_(options.stragglers) {}

SpeedJudge::Verdict SpeedJudge::judge(Instant now, const Membership& membership) {
  ENSURE(membership.view(), "speeds are judged while a view runs");
  const Duration since = judged_at_ ? now - *judged_at_ : speed_sample_;
  if (since < speed_sample_ / kJudgementsPerSample) {
    return {};
  }
  judged_at_ = now;
  if (since > speed_sample_) {
    stragglers_.skip(since);
    rebalancer_.skip(since);
  }
  std::vector<Load> loads;
  std::vector<Runner> runners;
  for (const ViewMember& member : membership.view()->members) {
    const Peer* peer = membership.find(member.id);
    if (member.is_observer() || peer == nullptr) {
      continue;
    }
    loads.push_back({peer->speed.settled_ms(), member.count});
    if (!peer->is_leaving()) {
      runners.push_back({member.id, peer->host, peer->speed.settled_ms()});
    }
  }
  Verdict verdict;
  verdict.straggler = find_straggler(now, runners, membership);
  if (!verdict.straggler) {
    if (const std::optional<Rebalance> change = rebalancer_.judge(now, loads)) {
      verdict.rebalance = describe(*change, loads);
    }
  }
  return verdict;
}

std::optional<SpeedJudge::Straggler> SpeedJudge::find_straggler(Instant now,
                                                                const std::vector<Runner>& runners,
                                                                const Membership& membership) {
  const std::optional<MemberId> slow = stragglers_.judge(now, runners);
  const std::size_t others = runners.size() + membership.count(Peer::Phase::kReady);
  if (!slow || others <= workers_min_ || !leaves_somebody(membership.peers(), *slow)) {
    return std::nullopt;
  }
  const Peer& peer = membership.at(*slow);
  stragglers_.drained({*slow, peer.host, peer.speed.settled_ms()});
  return Straggler{*slow,
                   fmt::format("straggler: {:.1f} ms a microbatch", peer.speed.settled_ms())};
}

}  // namespace mayfly::elastic
