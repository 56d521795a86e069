#include "engine/run/evaluations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "base/bytes.hpp"
#include "base/digest.hpp"
#include "base/file.hpp"
#include "base/time.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::engine {
namespace {

constexpr const char* kNoManifest = "unreadable";

std::string manifest_in(const std::string& checkpoint) {
  const Result<Bytes> manifest =
      read_file(checkpoint + "/" + nn::kManifestFile, kCheckpointFileBytesMax);
  return manifest.ok() ? to_string(digest_of(manifest.value())) : kNoManifest;
}

/// An old checkpoint that is being removed has no manifest any more and must not be measured.
bool is_another(const std::string& manifest, const std::string& before) {
  return manifest != before && manifest != kNoManifest;
}

}  // namespace

std::string manifest_of(const nn::CheckpointFiles& files) {
  return to_string(digest_of(ByteSpan(files.at(nn::kManifestFile))));
}

std::string evaluations_path(const std::string& run_dir) {
  return run_dir + "/evaluations.jsonl";
}

Fact fact_of(const Evaluation& evaluation) {
  if (!evaluation.failure.empty()) {
    return {"evaluation_failed",
            {{"step", evaluation.step}, {"detail", evaluation.failure}},
            fmt::format("the checkpoint of step {} is not measured: {}", evaluation.step,
                        evaluation.failure)};
  }
  return {"evaluated",
          {{"step", evaluation.step},
           {"test_top1", evaluation.test_top1},
           {"test_loss", evaluation.test_loss},
           {"server", evaluation.evaluator}},
          fmt::format("step {}: test accuracy {:.2f} %, test loss {:.4f}, by evaluator {}",
                      evaluation.step, 100 * evaluation.test_top1, evaluation.test_loss,
                      evaluation.evaluator)};
}

std::string to_json(const Evaluation& evaluation) {
  json::object line{{"time", wall_clock_seconds()}};
  for (const auto& [name, field] : object_of(evaluation)) {
    line[name] = field;
  }
  return json_text(line);
}

std::vector<Evaluation> read_evaluations(const std::string& run_dir) {
  std::vector<Evaluation> evaluations;
  std::ifstream file(evaluations_path(run_dir));
  for (std::string line; std::getline(file, line);) {
    // A line that an evaluator could not finish is not a result.
    (void)with_object("", line, [&evaluations](const json::object& object) {
      evaluations.push_back(record_of<Evaluation>(object));
    });
  }
  return evaluations;
}

SeenCheckpoints checkpoints_on_record(const std::string& run_dir) {
  SeenCheckpoints seen;
  for (const Evaluation& evaluation : read_evaluations(run_dir)) {
    seen[evaluation.step] = evaluation.manifest;
  }
  return seen;
}

std::vector<FoundCheckpoint> checkpoints_to_measure(const std::string& run_dir,
                                                    const SeenCheckpoints& seen) {
  const std::string folder = run_dir + "/checkpoints";
  std::vector<FoundCheckpoint> found;
  for (const std::uint64_t step : steps_of_checkpoints(folder)) {
    const auto before = seen.find(step);
    const std::string manifest = manifest_in(folder_of_checkpoint(folder, Step{step}));
    if (before == seen.end() || is_another(manifest, before->second)) {
      found.push_back({step, manifest});
    }
  }
  std::ranges::reverse(found);
  return found;
}

}  // namespace mayfly::engine
