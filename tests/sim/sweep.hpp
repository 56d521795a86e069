#pragma once

// Many seeds of the simulator, on several threads. Each run belongs to one thread from start to
// end; what comes out does not depend on how many threads there are.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/sim/fault_plan.hpp"
#include "tests/sim/sim_world.hpp"

namespace mayfly::sim {

struct SweepOptions {
  std::uint64_t first_seed = 1;
  std::uint64_t seeds = 1000;
  unsigned threads = 1;
  Sabotage sabotage = Sabotage::kNone;
  std::size_t failures_kept = 5;  ///< of so many failing seeds the story is kept, lowest first
};

/// A seed whose run violated something.
struct Failure {
  Scenario scenario;
  RunResult result;
};

struct SweepResult {
  RunResult totals;            ///< the counts of all runs added up; no texts
  std::uint64_t failing = 0;   ///< seeds
  std::vector<Failure> first;  ///< the lowest failing seeds
};

/// Runs all seeds. `progress` (seeds done, failing so far) is called now and then, from any of the
/// threads but one at a time.
[[nodiscard]] SweepResult sweep(
    const SweepOptions& options,
    const std::function<void(std::uint64_t done, std::uint64_t failing)>& progress = {});

/// "1000 seeds from 1: 8110 views, 2310 lost, ..., 0 failing, fingerprint 0123456789abcdef".
[[nodiscard]] std::string summary_line(const SweepOptions& options, const SweepResult& result);

/// The scenario, what was violated, the last `lines` lines of the history and how to replay it.
[[nodiscard]] std::string story_of(const Failure& failure, std::size_t lines);

/// "mayfly simulate --replay SEED ...".
[[nodiscard]] std::string replay_command(const Scenario& scenario);

}  // namespace mayfly::sim
