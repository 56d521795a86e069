#pragma once

// Starts a program of the user's own (engine/program) as a worker, with an environment that
// contains the location of its job.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// The facts that the program's library reads from the environment. Empty texts are left out. Paths
/// may be relative to the working folder of this process; the program gets absolute ones.
struct ProgramPlace {
  std::string coordinator;   ///< HOST:PORT
  std::uint32_t number = 0;  ///< of the worker
  std::string job_file;      ///< the job's settings, on the coordinator's host
  std::string run_dir;
  std::string token_file;
  std::string bind_host;                ///< where there is no job file
  bool is_launched = true;              ///< by this host's launcher, with which it ends
  std::optional<std::uint32_t> slot{};  ///< as kSlotVariable, if its environment has none
  /// Further settings of the worker's own, by name.
  std::vector<std::pair<std::string, std::string>> settings{};
  std::string folder{};  ///< the working folder; empty = that of this process
};

/// Whether this host can start the command's program, so that a wrong name is refused before the
/// job has a run directory. kNotFound with what is wrong; kInvalidInput for a folder or a file that
/// may not be executed. An empty command is accepted: the workers are then those of Mayfly.
[[nodiscard]] Result<void> check_program(const std::vector<std::string>& command);

/// The command that runs `command` with that environment. The environment also names the library
/// and the program beside this executable, and Python's path contains the package beside it, if
/// they exist.
[[nodiscard]] std::vector<std::string> command_at(const ProgramPlace& place,
                                                  const std::vector<std::string>& command);

/// Runs a command to its end as a child that dies with this process, passes SIGTERM and SIGUSR1 on
/// to it, and SIGINT as SIGTERM, and returns its exit code (kExitFailed if a signal has ended it,
/// or if it cannot be started, which is logged).
[[nodiscard]] int run_command(const std::vector<std::string>& command);

/// `mayfly worker ... -- COMMAND`: this process becomes the program, which joins as a worker with
/// the settings `own`. The settings `given`, by name as on the command line, override those of the
/// job. `job_file` as in ProgramPlace; empty = none. Starts it in the folder from the bundle, if
/// there is one. Returns an exit code only if the program cannot be started, which is logged.
[[nodiscard]] int become_program(const JobConfig& own,
                                 const std::vector<std::pair<std::string, std::string>>& given,
                                 const std::string& job_file,
                                 const std::vector<std::string>& command);

}  // namespace mayfly::engine
