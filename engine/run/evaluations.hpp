#pragma once

// RUN/evaluations.jsonl: the test accuracy of a run's checkpoints, which evaluators measure beside
// the training, and the list of checkpoints that are not measured yet.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nn/checkpoint_files.hpp"

namespace mayfly::engine {

struct Fact;

/// The result of measuring one checkpoint.
struct Evaluation {
  std::uint64_t step = 0;
  std::uint64_t samples = 0;
  double test_top1 = 0;  ///< 0 to 1
  double test_loss = 0;
  double seconds = 0;     ///< duration of the measurement
  std::string failure;    ///< not empty: why the checkpoint could not be measured
  std::string evaluator;  ///< name of the provider's server that measured it; empty: no such server
  std::string
      manifest;  ///< of the checkpoint (FoundCheckpoint); an evaluator elsewhere leaves it out

  /// Their description for JSON; see engine/run/records.hpp.
  static void fields(auto& io, auto& r) {
    io("step", r.step);
    io("samples", r.samples);
    io("test_top1", r.test_top1);
    io("test_loss", r.test_loss);
    io("seconds", r.seconds);
    io.wire(r.failure);
    io.unless("", "evaluator", r.evaluator);
    io.unless("", "manifest", r.manifest);
  }
  friend bool operator==(const Evaluation&, const Evaluation&) = default;
};

/// The event about a checkpoint that was measured, or that could not be, for events.jsonl.
[[nodiscard]] Fact fact_of(const Evaluation& evaluation);

[[nodiscard]] std::string evaluations_path(const std::string& run_dir);
/// The line of evaluations.jsonl, with the present time.
[[nodiscard]] std::string to_json(const Evaluation& evaluation);
/// The evaluations in this run's evaluations.jsonl, in the file's order, without unreadable lines.
[[nodiscard]] std::vector<Evaluation> read_evaluations(const std::string& run_dir);
/// A checkpoint in the run directory.
struct FoundCheckpoint {
  std::uint64_t step = 0;
  std::string manifest;  ///< its digest; distinguishes states of the same step
};
/// The digest of the manifest of a checkpoint that was read. It may differ from the one that was
/// found before, because a job that goes back to an earlier step replaces checkpoints.
[[nodiscard]] std::string manifest_of(const nn::CheckpointFiles& files);
/// Manifests of the checkpoints that were measured or are being measured, by step.
using SeenCheckpoints = std::map<std::uint64_t, std::string>;
/// The checkpoints that have a line in evaluations.jsonl.
[[nodiscard]] SeenCheckpoints checkpoints_on_record(const std::string& run_dir);
/// The run's checkpoints that are not in `seen`, smallest step first. A job that goes back to, or
/// is resumed from, an earlier step writes another checkpoint of a step in the place of the first.
[[nodiscard]] std::vector<FoundCheckpoint> checkpoints_to_measure(const std::string& run_dir,
                                                                  const SeenCheckpoints& seen);

}  // namespace mayfly::engine
