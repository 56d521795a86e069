#pragma once

// One interface for all simulated worlds, whose runs are functions of a seed. `mayfly simulate`,
// sweeps over many seeds and the descriptions of runs use it.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/failover_world.hpp"
#include "tests/sim/fault_plan.hpp"
#include "tests/sim/parameter_server_scenario.hpp"
#include "tests/sim/sim_world.hpp"

namespace mayfly::sim {

/// The outcome of one seed.
struct Outcome {
  std::uint64_t seed = 0;
  std::string scenario;                                       ///< in one line
  std::string replay;                                         ///< the command that repeats the run
  std::vector<std::string> violations;                        ///< empty if no invariant was broken
  std::vector<std::string> history;                           ///< one readable line per event
  std::vector<std::pair<std::string, std::uint64_t>> counts;  ///< the same names for every seed
  std::uint64_t fingerprint = 0;                              ///< equal for two runs of a seed
};

[[nodiscard]] Outcome outcome_of(const Scenario& scenario, RunResult result);
[[nodiscard]] Outcome outcome_of(const FailoverScenario& scenario, FailoverResult result);
[[nodiscard]] Outcome outcome_of(const PsOptions& scenario, PsResult result);

class World {
 public:
  virtual ~World() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  /// The names of the defects that can be planted in it and that its checkers must detect.
  [[nodiscard]] virtual std::vector<std::string> sabotages() const = 0;
  /// Runs one seed, on any thread. `sabotage` is one of sabotages(), or "none".
  [[nodiscard]] virtual Outcome play(std::uint64_t seed, const std::string& sabotage) const = 0;
};

/// Workers and one coordinator that is never lost, with faults of every kind: sim_world.
[[nodiscard]] const World& membership_world();
/// Coordinators that die and are cut off, with standbys or without: failover_world.
[[nodiscard]] const World& failover_world();
/// Parameter servers under every policy, with a coordinator that is never lost:
/// parameter_server_world.
[[nodiscard]] const World& parameter_server_world();
[[nodiscard]] const std::vector<const World*>& all_worlds();

}  // namespace mayfly::sim
