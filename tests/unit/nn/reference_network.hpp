#pragma once

// The same networks in double precision with the simplest possible loops: slow, but short enough to
// be compared with the formulas. Shares no code with the engine; all tensors are NCHW.

#include <cstdint>
#include <span>
#include <vector>

#include "nn/model.hpp"

namespace mayfly::nn::reference {

struct Step {
  double loss = 0;                 ///< mean over the batch
  std::vector<double> logits;      ///< images x classes
  std::vector<double> gradient;    ///< flat, as Model::parameters; empty if not requested
  std::vector<double> statistics;  ///< flat, as Model::statistics: batch mean, unbiased variance
};

struct Problem {
  const Model& model;
  std::vector<double> parameters;
  std::vector<double> images;
  std::vector<std::uint16_t> labels;
  double smoothing = 0;
};

/// Training mode: norms use the batch's own statistics.
[[nodiscard]] Step train(const Problem& problem, bool with_gradient);

/// Inference with running statistics; only the logits are filled in.
[[nodiscard]] Step evaluate(const Problem& problem, const std::vector<double>& running);

}  // namespace mayfly::nn::reference
