#pragma once

// What `mayfly eval` and `mayfly evaluator` have in common: the data that a checkpoint is measured
// on, and the measuring. One thread at a time.

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "cli/arguments.hpp"
#include "cli/evaluate.hpp"
#include "cli/open_checkpoint.hpp"
#include "datasets/dataset.hpp"

namespace mayfly::cli {

/// The data set of --data, or of the run that wrote the checkpoint. kInvalidInput if neither says
/// one, or if it has another number of classes than the checkpoint.
[[nodiscard]] Result<datasets::DatasetPair> open_test_data(const ParsedArguments& arguments,
                                                           const OpenCheckpoint& checkpoint);

struct EvaluationMeans {
  std::uint32_t threads = 0;
  std::string isa;
};
/// --threads (or `usual_threads`), --isa and --conv-kernels; selects the latter two for the
/// process.
[[nodiscard]] Result<EvaluationMeans> evaluation_means(const ParsedArguments& arguments,
                                                       const std::string& usual_threads);

[[nodiscard]] Result<Accuracy> evaluate_on(const OpenCheckpoint& checkpoint,
                                           const datasets::DatasetPair& data,
                                           std::uint32_t threads);

}  // namespace mayfly::cli
