#pragma once

#include <cstdint>

#include "base/result.hpp"
#include "datasets/dataset.hpp"
#include "nn/model.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

struct Accuracy {
  std::uint64_t samples = 0;
  std::uint64_t correct = 0;
  double loss = 0;  ///< mean cross entropy

  [[nodiscard]] double top1() const {
    return samples == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(samples);
  }
};

/// Runs the test part of `data` through the network on `threads` threads (0 = one per core) and
/// returns when all are done. The result does not depend on the number of threads. Fails with the
/// first batch that cannot be read. nn::cpu::select_isa must be called first.
[[nodiscard]] Result<Accuracy> measure_accuracy(const nn::Model& model, const nn::ModelState& state,
                                                const datasets::DatasetPair& data,
                                                std::uint32_t threads);

}  // namespace mayfly::engine
