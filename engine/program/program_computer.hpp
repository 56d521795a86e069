#pragma once

// The Computer of a worker whose program computes (Mailbox): it adds the program's results to the
// sums of the step.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "base/result.hpp"
#include "datasets/core/sample_stream.hpp"
#include "engine/job/job.hpp"
#include "engine/program/mailbox.hpp"
#include "engine/program/program_state.hpp"
#include "engine/reduction/gradient_sums.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "engine/training/computer.hpp"

namespace mayfly::engine {

/// The program's result for a microbatch.
struct MicrobatchResult {
  /// One for each parameter, in the order in which they were registered; null = all zeros.
  std::span<const float* const> gradients;
  std::span<const double> metrics;  ///< in the order in which they were registered
  float loss = 0;                   ///< mean over the microbatch
  std::uint32_t correct = 0;
  float weight = 1;  ///< of loss and gradients in the means of the step; at least 0
};

/// The result of an evaluation on the whole test set.
struct ProgramEvaluation {
  std::uint64_t step = 0;  ///< after which the state was evaluated
  std::uint64_t samples = 0;
  std::uint64_t correct = 0;
  double loss_sum = 0;
  std::vector<double> sums;  ///< the program's own (ProgramFacts::sums)
};

class ProgramComputer final : public Computer {
 public:
  /// All arguments outlive it. `test_chunk`: samples of the test set that are evaluated at once.
  ProgramComputer(const Job& job, const ReductionLayout& layout, const ProgramTensors& tensors,
                  ProgramState& state, Mailbox& mailbox, std::uint32_t test_chunk);

  // The program's thread:
  /// The samples of a microbatch or a chunk, in its order, and the number of the pass over the data
  /// set in which each one is used (0 for chunks).
  struct Samples {
    std::vector<std::uint64_t> ids;
    std::vector<std::uint64_t> epochs;
  };
  [[nodiscard]] Samples samples_of(const ProgramTask& task) const;
  /// A seed that depends on only the job and the microbatch, not on the worker.
  [[nodiscard]] std::uint64_t seed_of(const ProgramTask& task) const;
  /// To be called when the program begins with its present task.
  void begins() { taken_ = monotonic_now(); }
  /// Adds the result of the present microbatch. If a metric or a buffer is or has become infinite
  /// or NaN although the loss is finite and the weight not 0: kInvalidInput with its name, and
  /// nothing is added.
  [[nodiscard]] Result<void> add(const MicrobatchResult& result);
  /// Stores the result of the present chunk: the number of correct predictions, the sum of the
  /// losses, and the program's own sums, each finite and at most kSumMax.
  void evaluated(std::uint64_t correct, double loss_sum, std::span<const double> own = {});
  static constexpr double kSumMax = 1e9;
  /// Whether this worker has computed the first microbatch of the step, as exactly one worker does.
  /// Valid while the program updates.
  [[nodiscard]] bool has_first() const { return has_first_; }
  /// The last evaluation that this worker has helped to compute; each one is returned once.
  [[nodiscard]] std::optional<ProgramEvaluation> take_evaluation();

  void begin_step(std::uint64_t step, std::span<const std::int32_t> exponents,
                  std::optional<std::uint32_t> audited) override;
  void add_microbatches(std::span<const std::uint32_t> microbatches) override;
  [[nodiscard]] bool wait_for_bucket(std::size_t bucket) override;
  [[nodiscard]] bool wait_for_step() override { return mailbox_.wait_until_done(); }
  [[nodiscard]] const GradientSums& sums() const override { return sums_; }
  [[nodiscard]] std::optional<std::uint64_t> audited_hash() const override { return audited_hash_; }
  [[nodiscard]] std::optional<std::uint64_t> recompute(std::uint32_t microbatch) override;
  void discard() override { mailbox_.discard(); }
  void drop_queued() override { mailbox_.drop_queued(); }
  void interrupt() override { mailbox_.interrupt(); }
  void clear_interrupt() override { mailbox_.clear_interrupt(); }
  [[nodiscard]] std::optional<Error> failure() const override { return std::nullopt; }
  [[nodiscard]] std::size_t test_chunks() const override;
  [[nodiscard]] EvaluationSums evaluate(std::span<const std::uint32_t> chunks) override;
  void evaluated_by_all(const EvaluationSums& sums) override;
  void run_parts(const PartFunction& function) override { function(0, 1); }
  [[nodiscard]] std::size_t thread_count() const override { return 1; }
  [[nodiscard]] ComputeSpeed take_speed() override;
  [[nodiscard]] ComputeWork computed() const override;

 private:
  [[nodiscard]] Result<void> check_statistics(std::span<const float> statistics) const;
  [[nodiscard]] Result<void> fill(const MicrobatchResult& result);
  [[nodiscard]] EvaluationSums no_sums() const;

  const Job& job_;
  const ReductionLayout& layout_;
  const ProgramTensors& tensors_;
  ProgramState& state_;
  Mailbox& mailbox_;
  const std::uint32_t test_chunk_;
  const datasets::SampleStream stream_;
  GradientSums sums_;
  AlignedBuffer<float> vector_;  // of the present microbatch
  std::uint64_t step_ = 0;
  std::optional<std::uint32_t> audited_;
  std::optional<std::uint64_t> audited_hash_;
  std::optional<std::uint64_t> repeated_hash_;
  bool has_first_ = false;
  EvaluationSums evaluation_;  // of the present chunk
  std::mutex mutex_;
  std::optional<ProgramEvaluation> evaluated_;  // guarded by mutex_
  std::optional<Instant> taken_;                // when the program began the present microbatch
  std::atomic<std::uint64_t> microbatches_{0};
  std::atomic<std::int64_t> computed_ns_{0};
  std::uint64_t reported_microbatches_ = 0;
  std::int64_t reported_computed_ns_ = 0;
};

}  // namespace mayfly::engine
