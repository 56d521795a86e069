#include "elastic/core/stragglers.hpp"

#include <algorithm>

namespace mayfly::elastic {
namespace {

constexpr int kDoublingsMax = 10;

/// The lower median of the others' known times; 0 = there are none.
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

void StragglerPolicy::drained(const Runner& runner) {
  slow_since_.erase(runner.member);
  ++drained_of_host_[runner.host];
}

Duration StragglerPolicy::patience(const std::string& host) const {
  const auto place = drained_of_host_.find(host);
  const int times = place == drained_of_host_.end() ? 0 : std::min(place->second, kDoublingsMax);
  return options_.after * (1 << times);
}

}  // namespace mayfly::elastic
