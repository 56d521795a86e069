#pragma once

// The numbers of the replacement policy that a simulated path needs. Pure; any thread.

namespace mayfly::planner {

/// Times in seconds. Each is the option of cloud_hooks::ReplacementOptions with that name.
struct PolicyRules {
  double gather_s;
  double start_timeout_s;
  double join_timeout_s;
  double leave_before_end_s;  ///< of a server's lifetime: leave_timeout
  double shun_after_burst_s;
  double back_to_spot_after_s;
  double stop_margin_s;
};

/// Their defaults, with which jobs run.
[[nodiscard]] PolicyRules default_rules();

}  // namespace mayfly::planner
