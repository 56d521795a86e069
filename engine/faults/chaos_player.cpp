#include "engine/faults/chaos_player.hpp"

#include <fmt/format.h>
#include <signal.h>

namespace mayfly::engine {
namespace {

/// The description of a fault that a worker injects into itself.
const char* own_fault(ChaosKind kind) {
  return kind == ChaosKind::kHang         ? "hangs"
         : kind == ChaosKind::kFlipResult ? "computes a wrong result"
                                          : "has a bit of its state flipped";
}

}  // namespace

/// Faults are tied to committed steps, not to the clock, so that a plan hits the same step on a
/// fast and on a slow machine.
void ChaosPlayer::play(std::uint64_t committed, Instant now) {
  while (!events_.empty() && events_.front().step <= committed) {
    const ChaosEvent event = events_.front();
    events_.pop_front();
    play(event, now);
  }
  std::erase_if(stopped_, [&](const Stopped& stopped) {
    if (stopped.until > now) {
      return false;
    }
    (void)targets_.signal_worker(stopped.worker, SIGCONT);
    return true;
  });
}

void ChaosPlayer::play(const ChaosEvent& event, Instant now) {
  if (is_of_worker(event.kind)) {
    targets_.note_chaos(
        fmt::format("chaos: local worker {} {}", event.worker.value_or(0), own_fault(event.kind)));
  } else if (event.kind == ChaosKind::kJoin) {
    start_worker();
  } else if (const std::optional<std::size_t> target = target_of(event)) {
    strike(*target, event, now);
  } else {
    targets_.note_chaos("chaos: no such worker is running; event skipped");
  }
}

void ChaosPlayer::start_worker() {
  const Result<std::size_t> started = targets_.start_worker();
  targets_.note_chaos(started.ok() ? fmt::format("chaos: local worker {} starts", started.value())
                                   : started.error().detail);
}

/// Errors are ignored, because the worker may have ended in the meantime.
void ChaosPlayer::strike(std::size_t worker, const ChaosEvent& event, Instant now) {
  const char* what = "kill -TERM (drain)";
  if (event.kind == ChaosKind::kKill) {
    what = "kill -9";
    (void)targets_.kill_for_good(worker);
  } else if (event.kind == ChaosKind::kStop) {
    what = "kill -STOP";
    stopped_.push_back({worker, now + milliseconds(event.for_ms)});
    (void)targets_.signal_worker(worker, SIGSTOP);
  } else {
    (void)targets_.signal_worker(worker, SIGTERM);
  }
  targets_.note_chaos(fmt::format("chaos: {} local worker {}", what, worker));
}

/// A fault without a number hits the oldest worker that still runs: usually rank 0, which sends the
/// reports and writes the checkpoints, so its loss tests the most.
std::optional<std::size_t> ChaosPlayer::target_of(const ChaosEvent& event) const {
  if (event.worker.has_value()) {
    return targets_.is_running(*event.worker) ? std::optional<std::size_t>(*event.worker)
                                              : std::nullopt;
  }
  const std::vector<std::size_t> running = targets_.running_workers();
  return running.empty() ? std::nullopt : std::optional(running.front());
}

}  // namespace mayfly::engine
