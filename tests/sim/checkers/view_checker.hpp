#pragma once

#include <map>

#include "elastic/core/view.hpp"
#include "tests/sim/checkers/violations.hpp"

namespace mayfly::sim {

/// Views are numbered 1, 2, 3, ...; members run only published views, each at most once, exactly as
/// published, and only if they belong to them.
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

}  // namespace mayfly::sim
