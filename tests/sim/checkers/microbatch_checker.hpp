#pragma once

#include <cstdint>
#include <vector>

#include "elastic/core/view.hpp"
#include "tests/sim/checkers/violations.hpp"

namespace mayfly::sim {

/// A completed reduction counts each microbatch of the step exactly once.
class MicrobatchChecker {
 public:
  MicrobatchChecker(Violations& violations, std::uint32_t microbatches)
      : violations_(violations), microbatches_(microbatches) {}
  /// `parts`: what each member put into the reduction.
  void on_reduced(ViewId view, std::uint64_t step,
                  const std::vector<elastic::MicrobatchSet>& parts);

 private:
  Violations& violations_;
  std::uint32_t microbatches_;
};

}  // namespace mayfly::sim
