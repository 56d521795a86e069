#pragma once

// The compute threads of one worker. Each owns a StepEngine and computes whole microbatches, whose
// gradients it adds to the step's GradientSums immediately.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "datasets/loader.hpp"
#include "elastic/net/progress_board.hpp"
#include "engine/faults/injector.hpp"
#include "engine/job/job.hpp"
#include "engine/network/host_copy.hpp"
#include "engine/reduction/gradient_sums.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "engine/run/ledger.hpp"
#include "engine/run/trace.hpp"
#include "engine/training/computer.hpp"
#include "nn/device_engine.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

class ComputePool final : public Computer, public StateOnDevice {
 public:
  /// Starts the threads; each builds its engine. `ledger`, `trace` and `board` (to which the
  /// threads write their activity) may be null. All references must outlive the pool.
  static Result<std::unique_ptr<ComputePool>> start(const Job& job, const ReductionLayout& layout,
                                                    datasets::Loader& loader, Ledger* ledger,
                                                    std::uint32_t threads, Trace* trace = nullptr,
                                                    elastic::ProgressBoard* board = nullptr);
  ~ComputePool() override;

  // Everything below: trainer thread only, except interrupt() and hang_at().

  /// The weights of steps and evaluations that begin from now on, until the next call; `state`
  /// outlives them. To be called before the first one.
  void compute_with(const nn::ModelState& state) { state_ = &state; }

  void begin_step(std::uint64_t step, std::span<const std::int32_t> exponents,
                  std::optional<std::uint32_t> audited) override;
  void add_microbatches(std::span<const std::uint32_t> microbatches) override;
  [[nodiscard]] bool wait_for_bucket(std::size_t bucket) override;
  [[nodiscard]] bool wait_for_step() override;
  [[nodiscard]] const GradientSums& sums() const override { return sums_; }
  [[nodiscard]] std::optional<std::uint64_t> audited_hash() const override;
  [[nodiscard]] std::optional<std::uint64_t> recompute(std::uint32_t microbatch) override;
  /// Does not cancel requests to the loader, because some are for the next step.
  void discard() override;
  void drop_queued() override;
  void interrupt() override;
  void clear_interrupt() override;
  [[nodiscard]] std::optional<Error> failure() const override;
  /// Chunks of microbatch size, the last one shorter.
  [[nodiscard]] std::size_t test_chunks() const override;
  [[nodiscard]] EvaluationSums evaluate(std::span<const std::uint32_t> chunks) override;
  [[nodiscard]] std::size_t thread_count() const override { return workers_.size(); }
  [[nodiscard]] ComputeSpeed take_speed() override;
  [[nodiscard]] ComputeWork computed() const override;

  void run_parts(const PartFunction& function) override;
  /// The engine, if there is only one and it computes in a device's memory; else null.
  [[nodiscard]] nn::DeviceEngine* on_device() const;
  /// Whether devices look up the images themselves (nn::DeviceEngine::holds_training_set).
  [[nodiscard]] bool holds_training_set() const;
  /// From now on the sums of parameters are kept in the memory of on_device(), see
  /// GradientSums::keep_on(), and parameters and momentum are updated there. The engine must be one
  /// that keeps the state. To be called before the first step.
  void keep_sums_on(collectives::DeviceSums& device);
  [[nodiscard]] bool updates_on_device() const { return optimizer_ != nullptr; }
  /// Lets the device update its parameters and momentum by SGD with the mean gradient (all-reduced
  /// sum times `scale`). `state` has the parameters and momentum from before the update, which the
  /// device reads only if it has another state, and the new statistics. The step must be complete;
  /// does not wait for the device.
  void update_on_device(const nn::SgdOptions& options, float scale, float rate,
                        const nn::ModelState& state);
  /// To be called for a step without an update: the device keeps its part of `state`. The step must
  /// be complete.
  void keep_on_device(const nn::ModelState& state);
  /// Copies from the result of the last update_on_device().
  void fetch(nn::DevicePart part, std::size_t first, std::span<float> to) override {
    optimizer_->fetch(part, first, to);
  }
  void state_replaced() override { ++replacements_; }

  /// A scripted fault: the thread sleeps for `how_long` before the next microbatch of this step, or
  /// of a later one. Any thread.
  void hang_at(std::uint64_t step, Duration how_long);
  /// Lets `injector`, which outlives the pool, slow microbatches down; null = not at all. To be
  /// called before the first step.
  void slow_down(Injector* injector) { injector_ = injector; }
  /// A scripted fault: the first audited microbatch that is computed here, in this step or a later
  /// one, has a wrong bit. To be called before the first step.
  void spoil_audited(std::uint64_t step) { spoil_from_ = step; }

 private:
  class Worker;
  enum class Work : std::uint8_t { kTrain, kAudit, kEvaluate, kPart };
  struct Task {
    Work work = Work::kTrain;
    std::uint32_t number = 0;                // microbatch, chunk of the test set, or part
    const PartFunction* function = nullptr;  // of run_parts()
  };

  struct Hang {
    std::uint64_t step = 0;
    Duration how_long{};
  };

  ComputePool(const Job& job, const ReductionLayout& layout, datasets::Loader& loader,
              Ledger* ledger, elastic::ProgressBoard* board);
  void hang_if_asked();
  void inject_slowdown(Duration took);
  [[nodiscard]] std::uint64_t version_of(Step committed) const;
  [[nodiscard]] nn::Weights weights_of(const nn::ModelState& state) const;
  [[nodiscard]] nn::Weights present_weights() const;
  void note_audited(std::span<float> result);
  bool wait_until_done(const std::uint32_t& counter);
  void fail(const Error& error);

  const Job& job_;
  const ReductionLayout& layout_;
  datasets::Loader& loader_;
  Ledger* ledger_;
  std::unique_ptr<elastic::ProgressBoard> own_board_;  // if none was passed
  elastic::ProgressBoard& board_;
  Injector* injector_ = nullptr;
  GradientSums sums_;
  collectives::DeviceSums* device_sums_ = nullptr;  // null: sums and updates are on the host
  nn::DeviceOptimizer* optimizer_ = nullptr;        // of the engine; null if device_sums_ is null
  std::uint64_t replacements_ = 0;                  // of the state; a part of its version
  const nn::ModelState* state_ = nullptr;           // set by compute_with()
  nn::Weights weights_;                             // set while idle
  std::uint64_t step_ = 0;                          // set while idle
  std::optional<std::uint32_t> audited_;            // set while idle
  std::optional<std::uint64_t> spoil_from_;         // read by the thread that computes audited_

  mutable std::mutex mutex_;
  std::condition_variable work_added_;
  std::condition_variable work_done_;
  // Guarded by mutex_:
  std::deque<Task> queue_;
  std::uint32_t added_ = 0;                   // microbatches of this step
  std::uint32_t running_ = 0;                 // tasks being computed
  std::uint32_t complete_ = 0;                // microbatches entirely in the sums
  std::vector<std::uint32_t> bucket_counts_;  // microbatches in each bucket's sums
  EvaluationSums evaluation_;
  std::optional<std::uint64_t> audited_hash_;
  std::optional<std::uint64_t> recomputed_;
  double thread_ms_ = 0;        // spent in microbatches since the last take_speed()
  std::uint32_t measured_ = 0;  // number of these microbatches
  ComputeWork computed_;
  std::optional<Error> failure_;
  std::optional<Hang> hang_;
  bool interrupted_ = false;
  bool stopping_ = false;

  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace mayfly::engine
