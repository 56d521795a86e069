// The program. Everything that needs the real process (environment, terminal, signals, fork) is
// gathered here and handed to run_cli.

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

/// Becomes the program mayfly-COMMAND, which is built apart from this one.
int become(const std::string& command, const std::vector<std::string>& words,
           cli::Context& context) {
  const std::string program = find_beside_program("mayfly-" + command);
  if (program.empty()) {
    return context.complain(
        command + ": mayfly-" + command + " is not beside this program; scripts/build builds it",
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
  return become("bench", words, context);
}

int run_simulator(const std::vector<std::string>& words, cli::Context& context) {
  return become("simulate", words, context);
}

cli::Services real_services() {
  return {engine::run_train,
          engine::run_program,
          engine::run_coordinator,
          engine::run_worker,
          engine::run_launched_rank,
          engine::become_program,
          engine::inside_launcher,
          elastic::fork_sentinel,
          elastic::send_command,
          pause_for,
          engine::run_compare,
          engine::run_tune_switch,
          engine::run_difference_profile,
          run_bench,
          run_simulator,
          engine::ask_for_job_settings};
}

int run(const std::vector<std::string>& words) {
  if (words == std::vector<std::string>{elastic::kSentinelCommand}) {
    elastic::run_spawned_sentinel();
  }
  cli::Context context{std::cout, std::cerr, ::isatty(STDERR_FILENO) == 1, {},
                       {},        nullptr,   ::isatty(STDOUT_FILENO) == 1, &std::cin};
  if (cli::starts_a_worker(words, engine::inside_launcher())) {
    // First of all: the child must inherit no thread, no connection and next to no memory.
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
