#pragma once

// Shared by `mayfly eval` and `mayfly evaluator`: opening the data set for a checkpoint, and
// measuring the checkpoint on it. One thread at a time.

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "cli/arguments.hpp"
#include "cli/checkpoint_commands.hpp"
#include "datasets/dataset.hpp"
#include "engine/network/accuracy.hpp"

namespace mayfly::cli {

/// The data set of --data, or of the run that wrote the checkpoint. kInvalidInput if neither is
/// known, or if the data set has another number of classes than the checkpoint.
[[nodiscard]] Result<datasets::DatasetPair> open_test_data(const ParsedArguments& arguments,
                                                           const OpenCheckpoint& checkpoint);

/// The means of computing that the flags of `eval` and `evaluator` choose.
struct EvaluationMeans {
  std::uint32_t threads = 0;
  std::string isa;
};
/// Reads --threads (or `usual_threads`), --isa and --conv-kernels. Selects instruction set and
/// kernels for the whole process. kInvalidInput for an unknown name or a set that this CPU lacks.
[[nodiscard]] Result<EvaluationMeans> evaluation_means(const ParsedArguments& arguments,
                                                       const std::string& usual_threads);

/// Measures the checkpoint on the test part of `data`, which open_test_data() opened for it.
[[nodiscard]] Result<engine::Accuracy> evaluate_on(const OpenCheckpoint& checkpoint,
                                                   const datasets::DatasetPair& data,
                                                   std::uint32_t threads);

}  // namespace mayfly::cli
