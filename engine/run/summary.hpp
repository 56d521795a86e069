#pragma once

// summary.json: the outcome of a job, described as the other records are (engine/run/records.hpp).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "datasets/core/left_out.hpp"
#include "engine/run/records.hpp"

namespace mayfly::engine {

struct Job;
struct RunHistory;

/// The words for an outcome in files and in what users read: "done", "too_few_workers", ...
[[nodiscard]] const char* to_text(elastic::Outcome outcome);

/// summary.json: the outcome of a job.
struct Summary {
  elastic::Outcome outcome = elastic::Outcome::kFailed;
  std::string detail;
  std::uint64_t steps = 0;
  std::uint64_t samples = 0;         ///< of its steps, each once
  std::uint64_t undone_samples = 0;  ///< of steps that were committed, undone and done again
  std::uint64_t retried_steps = 0;   ///< that were computed more than once (ADR 1)
  std::string final_digest;
  std::optional<std::uint64_t> skipped_steps;  ///< that made no update; fp16 only
  std::optional<double> test_top1;             ///< 0 to 1
  std::optional<double> test_loss;
  double images_per_second = 0;  ///< over the whole training time
  double train_seconds = 0;
  double data_wait_seconds = 0;  ///< the steps' data_wait_ms together
  std::uint32_t membership_changes = 0;
  std::vector<RecoveryRecord> recoveries;
  std::vector<WorkerStay> workers;  ///< in the order in which they joined
  /// The results of evaluators beside the training, if there were any.
  struct Evaluations {
    std::uint64_t count = 0;  ///< checkpoints that they measured
    std::uint64_t step = 0;   ///< of the last of these checkpoints, and its results
    double test_top1 = 0;
    double test_loss = 0;
    std::vector<std::string> evaluators;  ///< names of their servers

    static void fields(auto& io, auto& r) {
      io("count", r.count);
      io("evaluators", r.evaluators);
      io("step", r.step);
      io("test_top1", r.test_top1);
      io("test_loss", r.test_loss);
    }
  };
  std::optional<Evaluations> evaluations;
  /// Seconds in which no worker, or not every worker, computed a step; as far as they are measured.
  struct LostTime {
    double recoveries = 0;   ///< from the detection of a change to the first step after it
    double waiting = 0;      ///< for members or a majority, or paused
    double evaluations = 0;  ///< of the test accuracy, between steps and at the end
    double checkpoints = 0;  ///< copying the state, between steps
    double data = 0;         ///< compute threads waiting for data, within steps

    static void fields(auto& io, auto& r) {
      io("recoveries", r.recoveries);
      io("waiting", r.waiting);
      io("evaluations", r.evaluations);
      io("checkpoints", r.checkpoints);
      io("data", r.data);
    }
  };
  LostTime lost_seconds;
  std::optional<double> cost;  ///< of servers, in the unit of their prices
  std::string sync{};          ///< of parameter servers, or its phases; empty = all-reduce
  std::string reduction, backend, device, isa, dtype, conv_kernels, model, data;
  datasets::LeftOut left_out;  ///< images of the data
  std::uint64_t seed = 0;
  std::string last_checkpoint;
  std::string version;

  static void fields(auto& io, auto& r) {
    io("outcome", r.outcome);
    io("detail", r.detail);
    io("steps", r.steps);
    io("samples", r.samples);
    io("undone_samples", r.undone_samples);
    io("retried_steps", r.retried_steps);
    io("final_digest", r.final_digest);
    io.unless(std::nullopt, "skipped_steps", r.skipped_steps);
    io.unless(std::nullopt, "test_top1", r.test_top1);
    io.unless(std::nullopt, "test_loss", r.test_loss);
    io("images_per_second", r.images_per_second);
    io("train_seconds", r.train_seconds);
    io("data_wait_seconds", r.data_wait_seconds);
    io("membership_changes", r.membership_changes);
    io("recoveries", r.recoveries);
    io("workers", r.workers);
    io.unless(std::nullopt, "evaluations", r.evaluations);
    io("lost_seconds", r.lost_seconds);
    io("cost", r.cost);
    io.unless("", "sync", r.sync);
    io("reduction", r.reduction);
    io("backend", r.backend);
    io("device", r.device);
    io("isa", r.isa);
    io("dtype", r.dtype);
    io("conv_kernels", r.conv_kernels);
    io("model", r.model);
    io("data", r.data);
    io("images_left_out", r.left_out);
    io("seed", r.seed);
    io("last_checkpoint", r.last_checkpoint);
    io("version", r.version);
  }
};

/// Summarises the records of a job, without the outcome, its detail and the cost, which are not in
/// its history. `train_seconds`: from the first commit to the last. Reads the run directory's
/// evaluations, and its checkpoint of the last step where no record has the digest.
[[nodiscard]] Summary summary_of(const Job& job, const RunHistory& history, double train_seconds);

/// A sentence for the user that says why no checkpoint contains the last committed step; nothing if
/// one does. `newest_received`: the newest reported checkpoint in the run directory; `failed`: the
/// last one that could not be written. Reads the run directory if these do not suffice.
[[nodiscard]] std::optional<std::string> unsaved_state(
    const RunHistory& history, const std::string& run_dir,
    const std::optional<Step>& newest_received, const std::optional<CheckpointRecord>& failed);

}  // namespace mayfly::engine
