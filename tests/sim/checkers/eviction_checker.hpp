#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/ids.hpp"
#include "tests/sim/checkers/violations.hpp"

namespace mayfly::sim {

/// Checks that every eviction is justified: the coordinator's reason has a cause among the faults
/// of the run. The workers of these worlds make no false claims, so a worker that has trained must
/// never be evicted for a contradiction. One exception is tolerated, although it is a weakness:
/// members report their commits only from time to time, so a worker may join with a later state
/// than any that the coordinator has heard of.
class EvictionChecker {
 public:
  /// Facts that can explain an eviction.
  struct Causes {
    bool links_broke = false;   ///< between members of its view
    bool failed_alone = false;  ///< the trainer of a member of its view has failed
    bool stood_still = false;   ///< the member was suspended, or its messages were delayed for long
    bool was_unheard = false;   ///< its connection to the coordinator ended
    bool brought_state = false;  ///< it has not worked yet, or not since its last eviction
  };

  explicit EvictionChecker(Violations& violations) : violations_(violations) {}

  /// `reason`: the text of the coordinator's note.
  void on_evicted(MemberId member, std::string_view reason, const Causes& causes) {
    violations_.expect(is_explained(reason, causes), [&] {
      return "member " + std::to_string(value(member)) +
             " is evicted without a cause: " + std::string(reason);
    });
  }

 private:
  static bool is_explained(std::string_view reason, const Causes& causes) {
    const auto begins = [reason](std::string_view words) { return reason.starts_with(words); };
    if (begins("other members could not exchange data") || begins("it is cut off") ||
        begins("its group broke again and again")) {
      return causes.links_broke || causes.failed_alone;
    }
    if (begins("did not leave the group within")) {
      return causes.stood_still;
    }
    if (begins("the job continued without it")) {
      return causes.was_unheard;
    }
    const bool is_ahead = begins("says that it has committed") &&
                          reason.find(", while the others are at ") != std::string_view::npos;
    return is_ahead && causes.brought_state;
  }

  Violations& violations_;
};

}  // namespace mayfly::sim
