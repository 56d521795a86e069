#pragma once

// The files of one run: config.toml, events.jsonl, metrics.jsonl, summary.json, logs/,
// checkpoints/, tb/. Only the coordinator's process writes here (workers write their logs and
// checkpoints into the sub-folders). Lines are complete: a crash can only lose the last one.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "datasets/core/left_out.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// One committed step, as in metrics.jsonl.
struct StepMetric {
  std::uint64_t step = 0;
  std::uint64_t samples = 0;  ///< used by this step
  double epoch = 0;           ///< passes completed after this step
  double loss = 0;
  double accuracy = 0;  ///< on the training batch, 0 to 1
  double learning_rate = 0;
  double images_per_second = 0;
  double data_wait_ms = 0;  ///< of the step, a compute thread of rank 0 waiting for its data
  std::uint32_t members = 0;
  std::uint64_t view = 0;
  std::string sample_hash;  ///< order-free hash of the sample ids in the reduced sum, hex
  std::string digest;       ///< of the state after the step; empty except every digest_every
  std::optional<double> loss_scale;  ///< in this step; fp16 only
  bool skipped = false;              ///< a gradient was not finite, so there was no update
  std::uint32_t attempts = 1;        ///< how often it was computed (ADR 1)
};

/// One change of membership, times in milliseconds since it was detected.
struct RecoveryRecord {
  std::string cause;  ///< lost, group_failed, join, leave
  std::vector<std::uint64_t> members;
  std::uint64_t step = 0;  ///< committed when it happened
  std::uint64_t view = 0;  ///< the new one
  std::uint32_t redone_microbatches = 0;
  double told_ms = 0, stopped_ms = 0, formed_ms = 0, synced_ms = 0, step_ms = 0;
  std::string detail;  ///< why the first of the members was lost, or what broke
};

/// A member's part in a run: the steps that it computed are after `first_step` up to `last_step`.
struct WorkerStay {
  std::uint64_t member = 0;
  std::string host;  ///< as it calls itself
  std::uint64_t first_step = 0;
  std::uint64_t last_step = 0;
};

struct Summary {
  std::string outcome;  ///< done, stopped, failed, too_few_workers
  std::string detail;
  std::uint64_t steps = 0;
  std::uint64_t samples = 0;         ///< of its steps, each once
  std::uint64_t undone_samples = 0;  ///< of steps that were committed, undone and done again
  std::uint64_t retried_steps = 0;   ///< that were computed more than once (ADR 1)
  std::optional<std::uint64_t> skipped_steps;  ///< that made no update; fp16 only
  datasets::LeftOut left_out;                  ///< images of the data
  std::string final_digest;
  std::optional<double> test_top1;  ///< 0 to 1
  std::optional<double> test_loss;
  double images_per_second = 0;  ///< over the whole training time
  double train_seconds = 0;
  double data_wait_seconds = 0;  ///< the steps' data_wait_ms together
  std::uint32_t membership_changes = 0;
  std::vector<RecoveryRecord> recoveries;
  std::vector<WorkerStay> workers;  ///< in the order in which they came
  /// By evaluators beside the training, if there were any.
  struct Evaluations {
    std::uint64_t count = 0;  ///< checkpoints that they measured
    std::uint64_t step = 0;   ///< the last one of them, and what it has
    double test_top1 = 0;
    double test_loss = 0;
    std::vector<std::string> evaluators;  ///< names of their servers
  };
  std::optional<Evaluations> evaluations;
  std::optional<double> cost;  ///< of servers, in the unit of their prices
  std::string reduction, backend, device, isa, dtype, conv_kernels, model, data;
  std::uint64_t seed = 0;
  std::string last_checkpoint;
  std::string version;
};

class RunDirectory {
 public:
  /// Creates the folder tree and writes config.toml. kInvalidInput if the folder already holds a
  /// run (events.jsonl exists) and `config.resume` does not point into it.
  static Result<std::unique_ptr<RunDirectory>> create(const JobConfig& config);
  /// Opens that of a job that goes on: nothing is refused, nothing written yet but that a torn last
  /// line is cut off.
  static Result<std::unique_ptr<RunDirectory>> reopen(const JobConfig& config);
  virtual ~RunDirectory() = default;

  [[nodiscard]] virtual const std::string& path() const = 0;
  // One thread at a time; a full disk is reported once on the log and does not stop the job.
  /// `fields` are already JSON (name, JSON value).
  virtual void event(const std::string& kind,
                     const std::vector<std::pair<std::string, std::string>>& fields) = 0;
  virtual void metric(const StepMetric& metric) = 0;
  virtual void evaluation(std::uint64_t step, double top1, double loss) = 0;
  virtual void recovery(const RecoveryRecord& record) = 0;
  [[nodiscard]] virtual Result<void> summary(const Summary& summary) = 0;
};

/// JSON literals for event(): a quoted and escaped string, a number.
[[nodiscard]] std::string json_string(std::string_view text);
[[nodiscard]] std::string json_number(double number);
[[nodiscard]] std::string json_number(std::uint64_t number);

/// summary.json as text, and the readable form for the terminal.
[[nodiscard]] std::string to_json(const Summary& summary);
[[nodiscard]] std::string to_text(const Summary& summary);

}  // namespace mayfly::engine
