// The program. Everything that needs the real process (environment, terminal, signals, fork) is
// gathered here and handed to run_cli.

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <thread>

#include "base/log.hpp"
#include "base/module_file.hpp"
#include "base/reason.hpp"
#include "base/standard_descriptors.hpp"
#include "cli/cli.hpp"
#include "engine/bench/group/group_rank.hpp"
#include "engine/bench/ps_bench.hpp"
#include "engine/compare/compare.hpp"
#include "engine/processes/job_settings.hpp"

extern char** environ;

namespace {

using namespace mayfly;

std::map<std::string, std::string> copy_environment() {
  std::map<std::string, std::string> copy;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t sign = text.find('=');
    if (sign != std::string::npos) {
      copy.emplace(text.substr(0, sign), text.substr(sign + 1));
    }
  }
  return copy;
}

void pause_for(Duration duration) {
  std::this_thread::sleep_for(duration);
}

int bench_elastic(const std::string& name, const engine::ElasticBenchOptions& options) {
  return name == "recovery" ? engine::bench_recovery(options)
         : name == "join"   ? engine::bench_join(options)
         : name == "drain"  ? engine::bench_drain(options)
         : name == "detect" ? engine::bench_detect(options)
                            : engine::bench_goodput(options);
}

/// Becomes the program mayfly-simulate.
int run_simulator(const std::vector<std::string>& words, cli::Context& context) {
  const std::string program = find_beside_program("mayfly-simulate");
  if (program.empty()) {
    return context.complain(
        "simulate: mayfly-simulate is not beside this program; scripts/build "
        "builds it",
        cli::kExitFailed);
  }
  std::vector<char*> argv = {const_cast<char*>("mayfly simulate")};
  for (const std::string& word : words) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  return context.complain(program + ": " + std::strerror(errno), cli::kExitFailed);
}

cli::Services real_services() {
  return {engine::run_train,
          engine::run_coordinator,
          engine::run_worker,
          engine::run_launched_rank,
          engine::inside_launcher,
          elastic::fork_sentinel,
          elastic::send_command,
          bench_elastic,
          pause_for,
          engine::bench_step,
          engine::bench_data,
          engine::bench_allreduce,
          engine::bench_reform,
          engine::run_bench_rank,
          engine::run_compare,
          engine::bench_ps,
          engine::run_tune_switch,
          engine::bench_engines,
          run_simulator,
          engine::ask_for_job_settings};
}

int run(const std::vector<std::string>& words) {
  cli::Context context{std::cout, std::cerr, ::isatty(STDERR_FILENO) == 1, {},
                       {},        nullptr,   ::isatty(STDOUT_FILENO) == 1};
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
  context.environment = copy_environment();
  context.services = real_services();
  return cli::run_cli(words, context);
}

}  // namespace

int main(int argc, char** argv) {
  open_closed_standard_descriptors();
  ::signal(SIGPIPE, SIG_IGN);  // a lost peer is an error value, not the end of this process
  ::signal(SIGXFSZ, SIG_IGN);  // and so is a file that may not grow any more: a full disk
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::filesystem::filesystem_error& failure) {
    // Of a path that somebody gave us: links in a circle, a file in the place of a folder.
    std::cerr << "mayfly: " << failure.path1().string() << ": " << failure.code().message() << "\n";
    return cli::kExitUsage;
  } catch (const std::exception& failure) {
    std::cerr << "mayfly: " << mayfly::reason_of(failure) << "\n";
    return cli::kExitFailed;
  }
}
