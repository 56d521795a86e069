#pragma once

// Carries out the injected slowness of one worker (engine/faults/injection_plan): the compute
// threads ask how much longer a microbatch is to take, the transport how much later a message
// leaves.

#include <atomic>
#include <memory>
#include <vector>

#include "base/result.hpp"
#include "engine/faults/duty_cycle.hpp"
#include "engine/faults/injection_plan.hpp"

namespace mayfly::engine {

class Injector {
 public:
  /// `rules` are this worker's. Called on a thread that lives as long as the process. kIo.
  static Result<std::unique_ptr<Injector>> start(std::vector<InjectionRule> rules);

  /// The worker turns to this step. Trainer thread.
  void begin_step(std::uint64_t step);

  // Any thread:
  /// How much later than it could a message leaves now.
  [[nodiscard]] Duration delay() const { return now().delay; }
  /// A microbatch took so long to compute (processor time; on a GPU, time): how much longer it is
  /// to take.
  [[nodiscard]] Duration slowdown_of(Duration took) const;

 private:
  explicit Injector(std::vector<InjectionRule> rules) : rules_(std::move(rules)) {}
  [[nodiscard]] InjectedEffects now() const;

  const std::vector<InjectionRule> rules_;
  std::atomic<std::uint64_t> step_ = 0;
  std::atomic<std::int64_t> started_ns_ = 0;  // the first step began; 0 = none has
  std::unique_ptr<DutyCycle> duty_cycle_;     // null = nobody is stopped
};

}  // namespace mayfly::engine
