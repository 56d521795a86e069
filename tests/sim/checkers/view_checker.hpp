#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "elastic/core/view.hpp"
#include "tests/sim/checkers/violations.hpp"

namespace mayfly::sim {

/// Checks that views are numbered 1, 2, 3, ..., and that members run only published views, each at
/// most once, exactly as published, and only if they are members of them.
class ViewChecker {
 public:
  explicit ViewChecker(Violations& violations) : violations_(violations) {}
  void on_published(const elastic::View& view);
  void on_run(MemberId member, const elastic::View& view);

 private:
  Violations& violations_;
  std::map<ViewId, elastic::View> published_;
  std::map<MemberId, ViewId> last_run_;
};

/// Checks that a completed reduction contains each microbatch of the step exactly once.
class MicrobatchChecker {
 public:
  MicrobatchChecker(Violations& violations, std::uint32_t microbatches)
      : violations_(violations), microbatches_(microbatches) {}
  /// `parts`: the microbatches that each member contributed.
  void on_reduced(ViewId view, std::uint64_t step,
                  const std::vector<elastic::MicrobatchSet>& parts);

 private:
  Violations& violations_;
  std::uint32_t microbatches_;
};

}  // namespace mayfly::sim
