#pragma once

// Carries out the injected slowness of one worker (engine/faults/injection_plan): compute threads
// ask for the extra time of a microbatch, the transport for the delay of a message, and the loader
// for the delay of images. A duty cycle stops the whole process (SIGSTOP) for a share of each 50
// ms, like a crowded or throttled machine. A small child process does that; it owns no descriptor
// and ends with the worker's process.

#include <sys/types.h>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "engine/faults/injection_plan.hpp"

namespace mayfly::engine {

class DutyCycle {
 public:
  static constexpr Duration kPeriod = milliseconds(50);

  DutyCycle() = default;
  DutyCycle(const DutyCycle&) = delete;
  DutyCycle& operator=(const DutyCycle&) = delete;
  ~DutyCycle();

  /// Starts the child. The calling thread must live as long as the process. kIo.
  [[nodiscard]] Result<void> start();
  /// Sets the share of each period (0 to 0.95) in which the process is stopped from now on. Any
  /// thread, after start().
  void set_share(double share);

 private:
  using Permille = std::atomic<std::uint32_t>;
  static_assert(Permille::is_always_lock_free, "two processes share it");

  Permille* share_ = nullptr;  // in memory shared with the child
  pid_t child_ = -1;
};

class Injector {
 public:
  /// `rules` are this worker's. Called on a thread that lives as long as the process. kIo.
  static Result<std::unique_ptr<Injector>> start(std::vector<InjectionRule> rules);

  /// The worker begins this step. Trainer thread.
  void begin_step(std::uint64_t step);

  // Any thread:
  /// The delay of a message that is sent now.
  [[nodiscard]] Duration delay() const { return now().delay; }
  /// The extra time for a microbatch whose computation took `took` (processor time; on a GPU,
  /// time).
  [[nodiscard]] Duration slowdown_of(Duration took) const;
  /// The effects while microbatches of this step are read and prepared, perhaps ahead of it.
  [[nodiscard]] InjectedEffects while_loading(std::uint64_t step) const;

 private:
  explicit Injector(std::vector<InjectionRule> rules) : rules_(std::move(rules)) {}
  [[nodiscard]] InjectedEffects now() const;

  const std::vector<InjectionRule> rules_;
  std::atomic<std::uint64_t> step_ = 0;
  std::atomic<std::int64_t> started_ns_ = 0;  // when the first step began; 0 = not yet
  std::unique_ptr<DutyCycle> duty_cycle_;     // null = this worker is not stopped
};

}  // namespace mayfly::engine
