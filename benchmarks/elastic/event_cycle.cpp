#include "benchmarks/elastic/event_cycle.hpp"

#include <algorithm>
#include <utility>

namespace mayfly::bench {
namespace {

constexpr std::uint64_t kQuietSteps = 5;            // in the view before the event
constexpr Duration kAimWindow = milliseconds(200);  // an event can then hit any phase of a step

std::optional<elastic::Recovery> first_where(
    const std::vector<elastic::Recovery>& changes,
    const std::function<bool(const elastic::Recovery&)>& wanted) {
  const auto found = std::find_if(changes.begin(), changes.end(), wanted);
  return found == changes.end() ? std::nullopt : std::optional(*found);
}

}  // namespace

std::optional<elastic::Recovery> first_loss(const std::vector<elastic::Recovery>& changes) {
  return first_where(changes, [](const elastic::Recovery& change) {
    return change.cause == elastic::ChangeCause::kLost ||
           change.cause == elastic::ChangeCause::kGroupFailed;
  });
}

std::optional<elastic::Recovery> first_with_cause(const std::vector<elastic::Recovery>& changes,
                                                  elastic::ChangeCause cause) {
  return first_where(changes,
                     [cause](const elastic::Recovery& change) { return change.cause == cause; });
}

EventCycle::EventCycle(std::uint32_t workers, std::uint32_t events, std::uint64_t seed,
                       EventCycleActions actions)
    : workers_(workers),
      events_(events),
      actions_(std::move(actions)),
      random_(CounterRandom(seed).split("event cycle")) {}

bool EventCycle::is_whole(engine::LocalLauncher& launcher) const {
  const elastic::JobStatus status = launcher.coordinator().server().status();
  return status.phase == elastic::JobPhase::kRunning && status.members.size() == workers_ &&
         std::all_of(status.members.begin(), status.members.end(),
                     [](const elastic::MemberStatus& m) {
                       return m.phase == elastic::MemberPhase::kActive;
                     });
}

void EventCycle::poll(engine::LocalLauncher& launcher) {
  const engine::JobProgress& progress = launcher.coordinator().recorder().progress();
  const std::uint64_t step = progress.last_step();
  switch (phase_) {
    case Phase::kSettling: {
      const std::uint64_t view = value(launcher.coordinator().server().status().view);
      if (!is_whole(launcher) || std::exchange(view_, view) != view) {
        quiet_since_step_ = step;
      } else if (step >= quiet_since_step_ + kQuietSteps) {
        const double part = random_.unit();
        strike_at_ =
            monotonic_now() + Duration(static_cast<std::int64_t>(part * to_ms(kAimWindow) * 1e6));
        phase_ = Phase::kAiming;
      }
      return;
    }
    case Phase::kAiming:
      if (monotonic_now() >= strike_at_) {
        recoveries_before_ = progress.recoveries().size();
        phase_ = Phase::kStruck;
        actions_.strike(launcher);
      }
      return;
    case Phase::kStruck: {
      const std::vector<elastic::Recovery> all = progress.recoveries();
      const std::size_t before = std::min(all.size(), recoveries_before_);
      if (!actions_.is_over(launcher,
                            {all.begin() + static_cast<std::ptrdiff_t>(before), all.end()})) {
        return;
      }
      if (++done_ == events_) {
        launcher.coordinator().server().stop("enough events");
      } else {
        actions_.restore(launcher);
      }
      quiet_since_step_ = step;
      phase_ = Phase::kSettling;
      return;
    }
  }
}

}  // namespace mayfly::bench
