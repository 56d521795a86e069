#pragma once

// Speeds that change while a view runs: microbatches are shared out anew at a boundary, and a
// member that is far too slow may be asked to leave. Both are planned changes; nothing is computed
// twice. Pure.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "elastic/core/coordinator_options.hpp"
#include "elastic/core/membership.hpp"
#include "elastic/core/rebalance.hpp"
#include "elastic/core/stragglers.hpp"

namespace mayfly::elastic {

class SpeedJudge {
 public:
  explicit SpeedJudge(const CoordinatorOptions& options);

  struct Straggler {
    MemberId member{};
    std::string reason;
  };
  /// At most one of the two: the change that follows a straggler shares out anew.
  struct Verdict {
    std::optional<Straggler> straggler;    ///< asked to leave; counts as gone from now on
    std::optional<std::string> rebalance;  ///< what a new view would bring; counts as made
  };
  /// To be asked every few milliseconds while a view runs undisturbed.
  [[nodiscard]] Verdict judge(Instant now, const Membership& membership);
  /// A view was published, for whatever reason: a gain has to be seen anew.
  void view_began() { rebalancer_.view_began(); }
  /// From the boundary until all members went on, the last rebalance took so long.
  void change_took(Duration cost) { rebalancer_.change_took(cost); }

 private:
  [[nodiscard]] std::optional<Straggler> find_straggler(Instant now,
                                                        const std::vector<Runner>& runners,
                                                        const Membership& membership);

  Duration speed_sample_;
  std::size_t workers_min_;
  Rebalancer rebalancer_;
  StragglerPolicy stragglers_;
  Instant next_judgement_{};
};

}  // namespace mayfly::elastic
