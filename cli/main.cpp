// The program `mayfly`. Everything that needs the real process (environment, terminal, signals,
// fork) is collected here and passed to run_cli.

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <thread>

#include "base/environment.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "cli/cli.hpp"
#include "cli/guarded_main.hpp"
#include "elastic/net/handshake.hpp"
#include "engine/compare/compare.hpp"
#include "engine/compare/difference_runs.hpp"
#include "engine/launch/program_command.hpp"
#include "engine/membership/job_settings.hpp"

namespace {

using namespace mayfly;

void pause_for(Duration duration) {
  std::this_thread::sleep_for(duration);
}

/// Replaces this process by the program mayfly-COMMAND, which is built separately. Returns only if
/// that fails.
int exec_companion(const std::string& command, const std::vector<std::string>& words,
                   cli::Context& context) {
  const std::string program = find_beside_program("mayfly-" + command);
  if (program.empty()) {
    return context.complain(command + ": mayfly-" + command +
                                " is not in the folder of this program; scripts/build builds it",
                            cli::kExitFailed);
  }
  std::string name = "mayfly " + command;
  std::vector<char*> argv = {name.data()};
  for (const std::string& word : words) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  return context.complain(program + ": " + std::strerror(errno), cli::kExitFailed);
}

int run_bench(const std::vector<std::string>& words, cli::Context& context) {
  return exec_companion("bench", words, context);
}

int run_simulator(const std::vector<std::string>& words, cli::Context& context) {
  return exec_companion("simulate", words, context);
}

cli::Services real_services() {
  return {
      .train = engine::run_train,
      .program = engine::run_program,
      .coordinator = engine::run_coordinator,
      .worker = engine::run_worker,
      .launched_rank = engine::run_launched_rank,
      .become_program = engine::become_program,
      .inside_launcher = engine::inside_launcher,
      .fork_sentinel = elastic::fork_sentinel,
      .send_command = elastic::send_command,
      .pause = pause_for,
      .now = monotonic_now,
      .compare = engine::run_compare,
      .tune_switch = engine::run_tune_switch,
      .profile_differences = engine::run_difference_profile,
      .bench = run_bench,
      .simulate = run_simulator,
      .ask_for_job_settings = engine::ask_for_job_settings,
  };
}

int run(const std::vector<std::string>& words) {
  if (words == std::vector<std::string>{elastic::kSentinelCommand}) {
    elastic::run_spawned_sentinel();
  }
  cli::Context context{.out = std::cout,
                       .err = std::cerr,
                       .err_is_terminal = ::isatty(STDERR_FILENO) == 1,
                       .environment = {},
                       .services = {},
                       .sentinel = nullptr,
                       .out_is_terminal = ::isatty(STDOUT_FILENO) == 1,
                       .in = &std::cin};
  if (cli::starts_a_worker(words, engine::inside_launcher())) {
    // First of all, so that the child inherits no thread, no connection and hardly any memory.
    Result<std::unique_ptr<elastic::Sentinel>> sentinel = elastic::fork_sentinel();
    if (!sentinel.ok()) {
      return context.complain(sentinel.error());
    }
    context.sentinel = std::move(sentinel).value();
  }
  // Standard output is for results; jobs open a log of their own later.
  log::open("mayfly", "", log::Level::kWarning);
  context.environment = environment();
  context.services = real_services();
  return cli::run_cli(words, context);
}

}  // namespace

int main(int argc, char** argv) {
  return mayfly::cli::guarded_main(argc, argv, run);
}
