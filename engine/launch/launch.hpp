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

/// `mayfly train` without an external coordinator: runs a coordinator in this process and `workers`
/// child processes (this executable as `mayfly worker`), and injects scripted faults. Ctrl-C stops
/// the job with a checkpoint; a second one ends it at once.
int run_train(const JobConfig& config, RunListener& listener);

/// `mayfly run`: the same with processes of `command`, a program of the user's own, as workers.
/// Their environment contains the address of the coordinator.
int run_program(const JobConfig& config, const std::vector<std::string>& command,
                RunListener& listener);

/// `mayfly coordinator`: only the coordinator; the user or a provider starts the workers.
int run_coordinator(const JobConfig& config, RunListener& listener);

/// `mayfly train` as one of several that mpirun, mpiexec or srun started: rank 0 also starts a
/// coordinator process; every rank is a worker of one elastic job, or starts `command`, a program
/// of the user's own, as one. Fails if the launcher's variables do not contain this process's rank.
int run_launched_rank(const JobConfig& config, RunListener& listener,
                      std::unique_ptr<elastic::Sentinel> sentinel,
                      const std::vector<std::string>& command);
/// Whether by its environment this process is one of several that a launcher started.
[[nodiscard]] bool inside_launcher();

}  // namespace mayfly::engine
