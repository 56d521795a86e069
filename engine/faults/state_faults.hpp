#pragma once

// Scripted damage to a worker's own state, for tests and demonstrations of what happens then
// (engine/faults/chaos_plan).

#include <vector>

#include "engine/faults/chaos_plan.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

class StateFaults {
 public:
  /// Keeps those of the events that flip a bit.
  explicit StateFaults(const std::vector<ChaosEvent>& events);

  /// Whether after_commit() would change the state after this step.
  [[nodiscard]] bool due(Step committed) const;
  /// A step was committed: flips one bit for each event whose step has come; each once.
  void after_commit(nn::ModelState& state);

 private:
  std::vector<ChaosEvent> events_;
};

}  // namespace mayfly::engine
