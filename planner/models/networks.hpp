#pragma once

// The sizes of trained networks, collected from every table that names them. Pure; any thread.

#include <map>
#include <optional>
#include <string>

#include "planner/calibration/calibration.hpp"

namespace mayfly::planner {

inline constexpr double kBytesPerParameter = 4;  // fp32
inline constexpr double kBytesPerMb = 1e6;

/// A network as a query or a table describes it; what is unknown is empty.
struct Network {
  std::string model, family;
  std::optional<double> gflops, params, tensors, weights_mb, meta_mb;
};

class Networks {
 public:
  explicit Networks(const Calibration& calibration);

  /// The network with all sizes that the tables have for its model and family. A size that no table
  /// has is inferred from other networks of its family, or from all: operations, parameters and
  /// checkpoint sizes are powers of each other.
  [[nodiscard]] Network completed(Network network) const;

 private:
  std::map<std::string, Network> known_;  ///< by model
};

}  // namespace mayfly::planner
