#pragma once

// Answers single questions to the planner's models: JSON lines in, JSON lines out
// (docs/planner.md). Pure; one thread at a time.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "planner/calibration/calibration.hpp"

namespace mayfly::planner {

struct FittedModels;  // planner/models/fitted.hpp

class Predictor {
 public:
  /// Fits all models.
  explicit Predictor(const Calibration& calibration);
  ~Predictor();
  Predictor(const Predictor&) = delete;
  Predictor& operator=(const Predictor&) = delete;

  /// The answer to one line, without a line break: a prediction, or an object with `error`.
  [[nodiscard]] std::string answer(std::string_view line) const;

  /// The quantities that a query can name, in the order of the documentation.
  [[nodiscard]] static std::vector<std::string> quantities();

 private:
  std::unique_ptr<const FittedModels> models_;
};

}  // namespace mayfly::planner
