#pragma once

// The environment of a command besides its arguments: streams, environment variables and services.
// main.cpp passes the real ones, tests pass doubles.

#include <functional>
#include <istream>
#include <map>
#include <memory>
#include <ostream>
#include <string>

#include "base/result.hpp"
#include "base/time.hpp"
#include "elastic/net/coordinator_server.hpp"
#include "elastic/net/sentinel.hpp"
#include "engine/compare/compare.hpp"
#include "engine/compare/compare_plan.hpp"
#include "engine/compare/difference_runs.hpp"
#include "engine/launch/launch.hpp"
#include "engine/membership/exit_codes.hpp"

namespace mayfly::cli {

using engine::kExitDone;
using engine::kExitFailed;
using engine::kExitUsage;

struct Context;

/// The jobs that commands start (engine/launch/launch.hpp) and the query to a running one
/// (elastic/net/coordinator_server.hpp).
struct Services {
  std::function<int(const engine::JobConfig&, engine::RunListener&)> train;
  std::function<int(const engine::JobConfig&, const std::vector<std::string>& command,
                    engine::RunListener&)>
      program;
  std::function<int(const engine::JobConfig&, engine::RunListener&)> coordinator;
  std::function<int(const engine::JobConfig&, std::unique_ptr<elastic::Sentinel>)> worker;
  std::function<int(const engine::JobConfig&, engine::RunListener&,
                    std::unique_ptr<elastic::Sentinel>, const std::vector<std::string>& command)>
      launched_rank;
  /// Replaces this process by a program of the user's own (engine/launch/program_command.hpp).
  std::function<int(const engine::JobConfig& own,
                    const std::vector<std::pair<std::string, std::string>>& given,
                    const std::string& job_file, const std::vector<std::string>& command)>
      become_program;
  std::function<bool()> inside_launcher;
  std::function<Result<std::unique_ptr<elastic::Sentinel>>()> fork_sentinel;
  std::function<Result<elastic::CommandReply>(const std::string& endpoint, ByteSpan token,
                                              const elastic::Command&, Duration timeout)>
      send_command;
  /// Sleeps.
  std::function<void(Duration)> pause;
  std::function<Instant()> now;
  std::function<int(const engine::CompareOptions&)> compare;
  std::function<int(const engine::TuneSwitchOptions&)> tune_switch;
  std::function<int(const engine::DifferenceOptions&)> profile_differences;
  /// Run the benchmarks and the simulator, programs of their own, with these words.
  std::function<int(const std::vector<std::string>& words, Context& context)> bench;
  std::function<int(const std::vector<std::string>& words, Context& context)> simulate;
  /// Asks the coordinators that `own` names for the settings of their job
  /// (engine/membership/job_settings.hpp).
  std::function<Result<engine::JobConfig>(const engine::JobConfig& own)> ask_for_job_settings;
};

struct Context {
  std::ostream& out;
  std::ostream& err;
  bool err_is_terminal = false;
  std::map<std::string, std::string> environment;
  Services services;
  /// Forked by main before anything else, if the command line looked like a worker's; else null.
  std::unique_ptr<elastic::Sentinel> sentinel;
  bool out_is_terminal = false;
  std::istream* in = nullptr;  ///< standard input; null for a command that reads none

  /// "mayfly: TEXT" on `err`; returns the exit code for it.
  int complain(const std::string& text, int exit_code) const;
  /// complain() for an error. Errors that the user can correct (kInvalidInput, kNotFound) give
  /// kExitUsage, all others kExitFailed.
  int complain(const Error& error) const;
};

}  // namespace mayfly::cli
