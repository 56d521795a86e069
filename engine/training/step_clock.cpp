#include "engine/training/step_clock.hpp"

#include <algorithm>
#include <utility>

namespace mayfly::engine {
namespace {

std::uint32_t micros(Duration time) {
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(time.count() / 1000, 0, 1 << 30));
}

}  // namespace

void StepClock::begin_view() {
  self_.reset();
  self_before_.reset();
  slowest_before_.reset();
  before_.reset();
  is_slowest_ = false;
}

ReadySignals StepClock::ready(Instant now, Duration waited, Rank self, bool is_first_step) {
  self_.reset();
  is_slowest_ = false;
  ReadySignals signals;
  signals.slowest_before = self_before_;
  if (has_committed() && !is_first_step) {
    const Duration needed = now - committed_ - evaluating_;
    const Duration for_data = std::min(waited - waited_at_commit_, needed);
    self_ = SlowestMember{self, std::max(1U, micros(needed)), micros(for_data)};
    signals.ready_us = self_->ready_us;
  }
  return signals;
}

void StepClock::reduced(Instant now, const ReadySignals& slowest) {
  reduced_ = now;
  is_slowest_ = self_ && self_->ready_us == slowest.ready_us;
  slowest_before_ = slowest.slowest_before;
}

std::optional<StepTimes> StepClock::committed(Instant now, Duration waited,
                                              const elastic::View& view) {
  std::optional<StepTimes> times;
  if (before_ && slowest_before_ && value(slowest_before_->rank) < view.members.size()) {
    using std::chrono::microseconds;
    const Duration until_update = before_->step - before_->update;
    const Duration ready =
        std::min<Duration>(microseconds(slowest_before_->ready_us), until_update);
    const Duration data = std::min<Duration>(microseconds(slowest_before_->data_us), ready);
    times = StepTimes{value(view.members[value(slowest_before_->rank)].id), to_ms(ready - data),
                      to_ms(data), to_ms(until_update - ready), to_ms(before_->update)};
  }
  before_ =
      self_
          ? std::optional(Own{now - committed_ - evaluating_ - copying_, now - reduced_ - copying_})
          : std::nullopt;
  self_before_ = is_slowest_ ? self_ : std::nullopt;
  last_step_ = has_committed() ? now - committed_ : Duration{};
  last_wait_ = waited - waited_at_commit_;
  waited_at_commit_ = waited;
  committed_ = now;
  last_copy_ = std::exchange(copying_, Duration{});
  evaluating_ = {};
  return times;
}

}  // namespace mayfly::engine
