#include "planner/simulation/policy_rules.hpp"

#include "base/time.hpp"
#include "cloud_hooks/core/replacement_options.hpp"

namespace mayfly::planner {

PolicyRules default_rules() {
  const cloud_hooks::ReplacementOptions options;
  return {to_seconds(options.gather),           to_seconds(options.start_timeout),
          to_seconds(options.join_timeout),     to_seconds(options.leave_timeout),
          to_seconds(options.shun_after_burst), to_seconds(options.back_to_spot_after),
          to_seconds(options.stop_margin)};
}

}  // namespace mayfly::planner
