#pragma once

// Scripted faults for the local launcher, for demonstrations and tests:
//   kill@step=200:worker=1,join@step=300,stop@step=40:worker=0:for=500,drain@step=60,hang@step=90,
//   flip_weights@step=20:worker=2,flip_result@step=70
// An event happens once, as soon as the step is committed. `worker` is the number of a local worker
// in the order of starting, from 0; the default is the lowest one that still runs, or 0 for faults
// that a worker injects into itself (is_of_worker). `for` is in milliseconds. StateFaults carries
// out the kinds that damage a worker's own state.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

enum class ChaosKind {
  kKill,   ///< SIGKILL
  kStop,   ///< SIGSTOP, and SIGCONT after `for` (default 1000 ms)
  kDrain,  ///< SIGTERM: leaves at the next boundary
  kJoin,   ///< one more worker
  kHang,   ///< its next microbatch is delayed by `for` (default ten minutes)
  // A bit of its own state is flipped right after the step, as failing memory would:
  kFlipWeights,
  kFlipMomentum,
  kFlipStatistics,
  kFlipResult,  ///< a bit of its result for the next audited microbatch is flipped
};

[[nodiscard]] constexpr bool flips_a_bit(ChaosKind kind) {
  return kind == ChaosKind::kFlipWeights || kind == ChaosKind::kFlipMomentum ||
         kind == ChaosKind::kFlipStatistics;
}

/// Whether the worker injects the fault into itself, see chaos_of_worker().
[[nodiscard]] constexpr bool is_of_worker(ChaosKind kind) {
  return flips_a_bit(kind) || kind == ChaosKind::kHang || kind == ChaosKind::kFlipResult;
}

struct ChaosEvent {
  ChaosKind kind = ChaosKind::kKill;
  std::uint64_t step = 0;
  std::optional<std::uint32_t> worker;
  std::uint32_t for_ms = 1000;
};

/// Events in the order of their steps. kInvalidInput names the error and shows a valid event.
[[nodiscard]] Result<std::vector<ChaosEvent>> parse_chaos_plan(const std::string& text);

/// The part of a plan that this local worker carries out itself, as a plan (is_of_worker).
[[nodiscard]] std::string chaos_of_worker(const std::vector<ChaosEvent>& plan,
                                          std::uint32_t worker);

class StateFaults {
 public:
  /// Keeps the events that flip a bit.
  explicit StateFaults(const std::vector<ChaosEvent>& events);

  /// Whether after_commit() would change the state after this step.
  [[nodiscard]] bool due(Step committed) const;
  /// A step was committed: flips one bit for each event up to this step. Each event happens once.
  void after_commit(nn::ModelState& state);

 private:
  std::vector<ChaosEvent> events_;
};

}  // namespace mayfly::engine
