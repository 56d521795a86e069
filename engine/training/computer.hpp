#pragma once

// The port for the computation of a worker's microbatches: an implementation adds their gradients
// to the step's GradientSums, bucket by bucket. The trainer distributes microbatches and waits for
// buckets; it never computes itself, and knows neither the network nor the samples. ComputePool
// implements the port for the built-in networks.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "engine/reduction/gradient_sums.hpp"
#include "engine/reduction/orderless_sum.hpp"

namespace mayfly::engine {

/// Sums over part of the test set.
struct EvaluationSums {
  std::int64_t correct = 0;
  std::int64_t samples = 0;
  OrderlessSum loss;              ///< cross entropy
  std::vector<OrderlessSum> own;  ///< a program's own sums (ProgramFacts::sums)
};

/// How fast a worker computes: the wall time from the moment when a thread takes a microbatch until
/// all of it is in the sums. It includes time in which other processes had the processor or the
/// thread waited for data, because a step takes that time here.
struct ComputeSpeed {
  double microbatch_ms = 0;  ///< mean time of one on a thread, over the number of threads; 0 = none
  std::uint32_t microbatches = 0;
};

/// The work of the threads since the start. A microbatch counts from the moment when its samples
/// are prepared until all of it is in the sums.
struct ComputeWork {
  std::uint64_t microbatches = 0;
  Duration time{};       ///< of all threads together
  Duration processor{};  ///< of that, on a processor
};

/// One of `parts` parts of some work that can be divided into any number of parts.
using PartFunction = std::function<void(std::uint32_t part, std::uint32_t parts)>;

/// The gradient of a microbatch is a function of only the state and the microbatch's number in the
/// step, with the same bits on every worker of the job. A computer reads the state that its
/// worker's StateKeeper has. Trainer thread only, except interrupt().
class Computer {
 public:
  virtual ~Computer() = default;

  /// Prepares a step: sums() are empty and quantised with `exponents`, and the state must stay
  /// unchanged until the step is complete or discarded. The step before must be complete or
  /// discarded. The hash of the result of microbatch `audited` is kept if it is computed here.
  virtual void begin_step(std::uint64_t step, std::span<const std::int32_t> exponents,
                          std::optional<std::uint32_t> audited) = 0;
  /// Adds microbatches to the present step; they begin in this order. Does not wait for them.
  virtual void add_microbatches(std::span<const std::uint32_t> microbatches) = 0;
  /// Blocks until every microbatch added so far is in this bucket's sums, which are then settled
  /// (GradientSums::settle()). False if interrupted first, or after a failure.
  [[nodiscard]] virtual bool wait_for_bucket(std::size_t bucket) = 0;
  /// Blocks until every microbatch added so far is complete, totals included. False if interrupted,
  /// or after a failure.
  [[nodiscard]] virtual bool wait_for_step() = 0;
  /// The same object as long as the computer exists.
  [[nodiscard]] virtual const GradientSums& sums() const = 0;

  /// A hash of loss, statistics and gradients of the audited microbatch, once it is in this step's
  /// sums.
  [[nodiscard]] virtual std::optional<std::uint64_t> audited_hash() const = 0;
  /// Computes a microbatch of this step once more (or for the first time) and returns that hash;
  /// the sums stay as they are. Nothing after a failure. All microbatches of the step must be in
  /// the sums. Not interruptible.
  [[nodiscard]] virtual std::optional<std::uint64_t> recompute(std::uint32_t microbatch) = 0;

  /// Drops microbatches that have not begun and waits for the others.
  virtual void discard() = 0;
  /// Drops microbatches that have not begun. The state must stay unchanged until discard() or
  /// begin_step().
  virtual void drop_queued() = 0;
  /// Makes the waiting functions return false until clear_interrupt(). Any thread.
  virtual void interrupt() = 0;
  virtual void clear_interrupt() = 0;
  /// Why this worker cannot compute its microbatches, as when a sample cannot be read. Stays set.
  [[nodiscard]] virtual std::optional<Error> failure() const = 0;

  /// The parts into which the test set is divided for evaluate(), the same on all workers; 0 =
  /// there is no test set, and the job evaluates nothing.
  [[nodiscard]] virtual std::size_t test_chunks() const = 0;
  /// Evaluates the present state on these chunks of the test set; the step before must be complete
  /// or discarded. The sums are meaningless after a failure, or if interrupted.
  [[nodiscard]] virtual EvaluationSums evaluate(std::span<const std::uint32_t> chunks) = 0;

  /// Informs the implementation of the sums of evaluate() over all members.
  virtual void evaluated_by_all(const EvaluationSums& /*sums*/) {}

  /// Lets the threads that compute each call `function` for a part and waits for all. The step must
  /// be complete; not interruptible.
  virtual void run_parts(const PartFunction& function) = 0;
  /// How many microbatches are computed at the same time, at least one.
  [[nodiscard]] virtual std::size_t thread_count() const = 0;
  /// The speed since the last call.
  [[nodiscard]] virtual ComputeSpeed take_speed() = 0;
  [[nodiscard]] virtual ComputeWork computed() const = 0;
};

}  // namespace mayfly::engine
