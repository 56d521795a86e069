#pragma once

// The jobs that the command line starts. Each function runs until the job, or this process's part
// of it, is over, and returns the process's exit code: 0 done, 1 failed, 2 bad configuration, 3
// stopped by the user with a checkpoint written, 4 too few workers for too long.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/config/config.hpp"
#include "engine/processes/worker.hpp"
#include "engine/run/run_listener.hpp"

namespace mayfly::elastic {
class Sentinel;
}

namespace mayfly::engine {

/// `mayfly train` without a coordinator elsewhere: runs a coordinator in this process and `workers`
/// child processes (this executable as `mayfly worker`), and carries out scripted chaos. Ctrl-C
/// stops the job with a checkpoint; a second one ends it at once.
int run_train(const JobConfig& config, RunListener& listener);

/// `mayfly run`: the same with `command`, a program of the user's own, in place of our workers.
/// Their environment tells them how to reach the job.
int run_program(const JobConfig& config, const std::vector<std::string>& command,
                RunListener& listener);

/// `mayfly coordinator`: the coordinator alone; workers come from elsewhere.
int run_coordinator(const JobConfig& config, RunListener& listener);

/// `mayfly train` as one of several that mpirun, mpiexec or srun started: rank 0 also starts a
/// coordinator process; every rank is a worker of one elastic job, or, with a `command`, a program
/// of the user's own is. Refuses to begin if the launcher does not tell this process its rank.
int run_launched_rank(const JobConfig& config, RunListener& listener,
                      std::unique_ptr<elastic::Sentinel> sentinel,
                      const std::vector<std::string>& command);
/// True if the environment says that a launcher started this process as one of several.
[[nodiscard]] bool inside_launcher();

}  // namespace mayfly::engine
