#include "engine/launch/chaos_player.hpp"

#include <fmt/format.h>
#include <signal.h>

#include "base/result.hpp"
#include "engine/launch/local_launcher.hpp"

namespace mayfly::engine {

ChaosPlayer::ChaosPlayer(LocalLauncher& launcher, const std::vector<ChaosEvent>& plan)
    : launcher_(launcher), events_(plan.begin(), plan.end()) {}

/// Faults are tied to committed steps, not to the clock, so that a plan hits the same step on a
/// fast and on a slow machine.
void ChaosPlayer::play() {
  const std::uint64_t step = launcher_.coordinator().recorder().last_step();
  while (!events_.empty() && events_.front().step <= step) {
    const ChaosEvent event = events_.front();
    events_.pop_front();
    play(event);
  }
}

void ChaosPlayer::play(const ChaosEvent& event) {
  if (is_of_worker(event.kind)) {
    const char* what = event.kind == ChaosKind::kHang         ? "hangs"
                       : event.kind == ChaosKind::kFlipResult ? "computes something wrong"
                                                              : "has a bit of its state flipped";
    launcher_.coordinator().note(
        "chaos", fmt::format("chaos: local worker {} {}", event.worker.value_or(0), what));
    return;
  }
  if (event.kind == ChaosKind::kJoin) {
    const Result<void> started = launcher_.start_worker();
    launcher_.coordinator().note(
        "chaos", started.ok()
                     ? fmt::format("chaos: local worker {} starts", launcher_.started() - 1)
                     : started.error().detail);
    return;
  }
  const std::optional<std::size_t> target = target_of(event);
  if (!target.has_value()) {
    launcher_.coordinator().note("chaos", "chaos: no such worker runs any more; event skipped");
    return;
  }
  const char* what = event.kind == ChaosKind::kKill   ? "kill -9"
                     : event.kind == ChaosKind::kStop ? "kill -STOP"
                                                      : "kill -TERM (drain)";
  const int signal = event.kind == ChaosKind::kStop ? SIGSTOP : SIGTERM;
  if (event.kind == ChaosKind::kStop) {
    wakes_.push_back({*target, monotonic_now() + milliseconds(event.for_ms)});
  }
  // It may have ended this instant.
  (void)(event.kind == ChaosKind::kKill ? launcher_.kill_for_good(*target)
                                        : launcher_.signal_worker(*target, signal));
  launcher_.coordinator().note("chaos", fmt::format("chaos: {} local worker {}", what, *target));
}

/// A fault without a number hits the oldest worker that still runs: rank 0, as a rule, which
/// reports for all and writes the checkpoints, so that its loss tests most.
std::optional<std::size_t> ChaosPlayer::target_of(const ChaosEvent& event) const {
  if (event.worker.has_value()) {
    return launcher_.is_running(*event.worker) ? std::optional<std::size_t>(*event.worker)
                                               : std::nullopt;
  }
  const std::vector<std::size_t> running = launcher_.running_workers();
  return running.empty() ? std::nullopt : std::optional(running.front());
}

void ChaosPlayer::wake_stopped_workers() {
  const Instant now = monotonic_now();
  std::erase_if(wakes_, [&](const Wake& wake) {
    if (wake.at > now) {
      return false;
    }
    (void)launcher_.signal_worker(wake.worker, SIGCONT);
    return true;
  });
}

}  // namespace mayfly::engine
