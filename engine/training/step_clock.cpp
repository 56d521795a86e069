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
  own_waits_.reset();
  slowest_before_.reset();
  waits_before_.reset();
  before_.reset();
  is_slowest_ = false;
}

ReadySignals StepClock::ready(Instant now, const MemberWaits& waits, Rank self,
                              bool is_first_step) {
  self_.reset();
  is_slowest_ = false;
  ReadySignals signals;
  signals.slowest_before = self_before_;
  signals.waits_before = own_waits_;
  if (has_committed() && !is_first_step) {
    const Duration needed = now - committed_ - evaluating_;
    const Duration fetch = std::min(waits.fetch - at_commit_.fetch, needed);
    const Duration prep = std::min(waits.prep - at_commit_.prep, needed - fetch);
    self_ = SlowestMember{self, std::max(1U, micros(needed)), micros(fetch), micros(prep)};
    signals.ready_us = self_->ready_us;
  }
  members_at_ready_ = waits.members;
  return signals;
}

void StepClock::reduced(Instant now, const ReadySignals& slowest, std::optional<Duration> members) {
  reduced_ = now;
  is_slowest_ = self_ && self_->ready_us == slowest.ready_us;
  slowest_before_ = slowest.slowest_before;
  waits_before_ = slowest.waits_before;
  own_waits_.reset();
  if (self_ && members && members_at_ready_) {
    const auto for_slowest = std::chrono::microseconds(slowest.ready_us - self_->ready_us);
    const std::uint32_t waited = micros(*members - *members_at_ready_ - for_slowest);
    own_waits_ = ExchangeWaits{self_->rank, waited, waited};
  }
}

/// The member for which all others waited in the exchange of the previous step, which took
/// `exchange`.
std::optional<HeldUp> StepClock::held_up(const elastic::View& view, Duration exchange) const {
  if (!waits_before_ || value(waits_before_->least) >= view.members.size()) {
    return std::nullopt;
  }
  const std::chrono::microseconds longer(waits_before_->most_us - waits_before_->least_us);
  return HeldUp{value(view.members[value(waits_before_->least)].id),
                to_ms(std::min<Duration>(longer, exchange))};
}

std::optional<StepTimes> StepClock::committed(Instant now, const MemberWaits& waits,
                                              const elastic::View& view) {
  std::optional<StepTimes> times;
  if (before_ && slowest_before_ && value(slowest_before_->rank) < view.members.size()) {
    using std::chrono::microseconds;
    const Duration until_update = before_->step - before_->update;
    const Duration ready =
        std::min<Duration>(microseconds(slowest_before_->ready_us), until_update);
    const Duration fetch = std::min<Duration>(microseconds(slowest_before_->fetch_us), ready);
    const Duration prep = std::min<Duration>(microseconds(slowest_before_->prep_us), ready - fetch);
    times = StepTimes{value(view.members[value(slowest_before_->rank)].id),
                      to_ms(ready - fetch - prep),
                      to_ms(fetch),
                      to_ms(prep),
                      to_ms(until_update - ready),
                      to_ms(before_->update),
                      held_up(view, until_update - ready)};
  }
  before_ =
      self_
          ? std::optional(Own{now - committed_ - evaluating_ - copying_, now - reduced_ - copying_})
          : std::nullopt;
  self_before_ = is_slowest_ ? self_ : std::nullopt;
  last_step_ = has_committed() ? now - committed_ : Duration{};
  last_wait_ = waits.data() - at_commit_.data();
  at_commit_ = waits;
  committed_ = now;
  last_copy_ = std::exchange(copying_, Duration{});
  evaluating_ = {};
  return times;
}

}  // namespace mayfly::engine
