#pragma once

// The rank processes of `mayfly bench allreduce` and `mayfly bench reform` that measure Mayfly's
// own transports: this program itself, started with a hidden command by the benchmark's driver.

#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "collectives/group.hpp"

namespace mayfly::bench {

/// Transport of a benchmark by name: tcp (TCP also within a host), unix (what members of one host
/// use by default), gloo, or a module (mpi). kUnsupported if this build or machine lacks it.
[[nodiscard]] Result<std::unique_ptr<collectives::Transport>> make_bench_transport(
    const std::string& backend);

/// `mayfly-bench bench-rank BACKEND --control PATH --name NAME` or `mayfly-bench bench-rank reform
/// BACKEND --control PATH --name NAME`; returns the process's exit code.
int run_bench_rank(const std::vector<std::string>& words);

}  // namespace mayfly::bench
