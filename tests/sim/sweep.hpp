#pragma once

// Runs many seeds of the simulator on several threads. Each run is carried out by one thread, and
// the result does not depend on the number of threads.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/world.hpp"

namespace mayfly::sim {

struct SweepOptions {
  const World* world = &membership_world();
  std::uint64_t first_seed = 1;
  std::uint64_t seeds = 1000;
  unsigned threads = 1;
  std::string sabotage = "none";  ///< one of World::sabotages()
  std::size_t failures_kept = 5;  ///< number of failing seeds whose outcome is kept, lowest first
};

struct SweepResult {
  std::vector<std::pair<std::string, std::uint64_t>> counts;  ///< of all runs added up
  std::uint64_t fingerprint = 0;
  std::uint64_t failing = 0;   ///< number of failing seeds
  std::vector<Outcome> first;  ///< the lowest failing seeds
};

/// Runs all seeds. Calls `progress` (seeds done, failing so far) from time to time, on any of the
/// threads but never on two at once.
[[nodiscard]] SweepResult sweep(
    const SweepOptions& options,
    const std::function<void(std::uint64_t done, std::uint64_t failing)>& progress = {});

/// "1000 seeds from 1: 8110 views, 2310 lost, ..., 0 failing, fingerprint 0123456789abcdef".
[[nodiscard]] std::string summary_line(const SweepOptions& options, const SweepResult& result);

/// The scenario, the violations, the last `lines` lines of the history, and the command that
/// replays the run.
[[nodiscard]] std::string story_of(const Outcome& run, std::size_t lines);

}  // namespace mayfly::sim
