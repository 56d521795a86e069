#pragma once

// RUN/evaluations.jsonl: the test accuracy of a run's checkpoints, as evaluators have measured it
// beside the training, and which checkpoints are not measured yet.

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
  double seconds = 0;     ///< that it took
  std::string failure;    ///< not empty: why the checkpoint could not be measured
  std::string evaluator;  ///< name of the server that measured it; empty: none of a provider's
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

/// What events.jsonl gets of a measured checkpoint, or of one that could not be measured.
[[nodiscard]] Fact fact_of(const Evaluation& evaluation);

[[nodiscard]] std::string evaluations_path(const std::string& run_dir);
/// The line of evaluations.jsonl, with the present time.
[[nodiscard]] std::string to_json(const Evaluation& evaluation);
/// What evaluations.jsonl of this run holds, in its order; lines that cannot be read are left out.
[[nodiscard]] std::vector<Evaluation> read_evaluations(const std::string& run_dir);
/// A checkpoint in the run directory.
struct FoundCheckpoint {
  std::uint64_t step = 0;
  std::string manifest;  ///< its digest: that of another state of the same step is another one
};
/// The digest of a checkpoint that was read, which may be another one than was found: a job that
/// goes back replaces it.
[[nodiscard]] std::string manifest_of(const nn::CheckpointFiles& files);
/// Manifests of checkpoints that were measured, or are, by step; empty: any, as older runs say
/// none.
using SeenCheckpoints = std::map<std::uint64_t, std::string>;
/// Those that evaluations.jsonl is about.
[[nodiscard]] SeenCheckpoints checkpoints_on_record(const std::string& run_dir);
/// The run's checkpoints that are not in `seen`, smallest step first. A job that goes back, or is
/// resumed from an earlier step, writes another checkpoint of a step in the place of the first.
[[nodiscard]] std::vector<FoundCheckpoint> checkpoints_to_measure(const std::string& run_dir,
                                                                  const SeenCheckpoints& seen);

}  // namespace mayfly::engine
