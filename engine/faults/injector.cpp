#include "engine/faults/injector.hpp"

#include <algorithm>

namespace mayfly::engine {

Result<std::unique_ptr<Injector>> Injector::start(std::vector<InjectionRule> rules) {
  std::unique_ptr<Injector> injector(new Injector(std::move(rules)));
  const bool stops = std::any_of(injector->rules_.begin(), injector->rules_.end(),
                                 [](const InjectionRule& rule) { return rule.stop > 0; });
  if (stops) {
    injector->duty_cycle_ = std::make_unique<DutyCycle>();
    TRY(injector->duty_cycle_->start());
  }
  return injector;
}

void Injector::begin_step(std::uint64_t step) {
  if (started_ns_ == 0) {
    started_ns_ = monotonic_now().ns;
  }
  step_ = step;
  if (duty_cycle_ != nullptr) {
    duty_cycle_->set_share(now().stop);
  }
}

InjectedEffects Injector::now() const {
  const std::int64_t started = started_ns_;
  if (rules_.empty() || started == 0) {
    return {};
  }
  return effects_at(rules_, step_, to_seconds(monotonic_now() - Instant{started}));
}

Duration Injector::slowdown_of(Duration took) const {
  const double longer = now().slow - 1;
  return Duration(static_cast<std::int64_t>(static_cast<double>(took.count()) * longer));
}

}  // namespace mayfly::engine
