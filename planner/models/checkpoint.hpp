#pragma once

// Time of a checkpoint that training waits for. Pure; any thread.

#include <string>
#include <vector>

#include "planner/calibration/calibration.hpp"
#include "planner/estimate.hpp"
#include "planner/fit.hpp"
#include "planner/models/networks.hpp"

namespace mayfly::planner {

/// The time is a constant (the storage's latency) plus terms in the bytes of weights and of
/// metadata, fitted on relative errors of the networks' means; the term for metadata is kept if
/// leaving out one network at a time favours it (CM-DARE, ICDCS 2020, fits bytes of all files
/// alone).
class CheckpointTimes {
 public:
  CheckpointTimes(const Calibration& calibration, const Networks& networks);

  /// Seconds until the checkpoint is stored. Needs weights_mb, or sizes from which it can be
  /// inferred. kNotFound.
  [[nodiscard]] Result<Forecast> stored(const Network& network) const;
  /// Seconds of the part before the upload, which grows with the number of tensors. kNotFound.
  [[nodiscard]] Result<Forecast> local(const Network& network) const;

 private:
  struct Means {
    std::vector<std::string> models;
    std::vector<Numbers> features;
    Numbers seconds;
    double run_spread = 0;  ///< of single checkpoints of one network, relative
  };
  [[nodiscard]] Result<Forecast> predict(const Means& means, const Numbers& features,
                                         const std::string& model, const char* what) const;

  Means plain_, with_meta_, local_;
};

}  // namespace mayfly::planner
