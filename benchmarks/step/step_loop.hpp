#pragma once

// Private to `mayfly bench step`: the work of one of its compute threads.

#include <cstdint>
#include <memory>
#include <optional>

#include "base/result.hpp"
#include "benchmarks/step/step_report.hpp"
#include "benchmarks/step/step_timer.hpp"
#include "benchmarks/step/step_work.hpp"
#include "nn/dtype.hpp"
#include "nn/step_engine.hpp"

namespace mayfly::bench {

/// A private copy of a worker with one thread and this share of the global batch. Made and used on
/// one thread.
class StepLoop final : public nn::GradientSink {
 public:
  /// `images_per_update` is a multiple of `batch`. `model` outlives the loop.
  StepLoop(const nn::Model& model, std::uint32_t batch, std::uint32_t images_per_update)
      : work_(model, batch, images_per_update) {}

  /// Builds the engine, with a timer of its parts if `timed`.
  [[nodiscard]] Result<void> prepare(nn::Dtype dtype, bool timed);
  /// Computes whole updates for at least so long, at least one.
  [[nodiscard]] ThreadRate run_for(double seconds);
  /// CPU seconds by part since the last run_for() began; empty unless timed.
  [[nodiscard]] StepSeconds times() const;

  void ready_from(std::size_t) override {}

 private:
  void one_update();

  StepWork work_;
  std::optional<StepTimer> timer_;
  std::unique_ptr<nn::StepEngine> engine_;  // it calls the timer, so it is destroyed first
};

}  // namespace mayfly::bench
