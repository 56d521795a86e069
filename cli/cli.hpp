#pragma once

// The subcommands, one function each; cli.cpp lists them with their flags.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/context.hpp"

namespace mayfly::cli {

// launch_commands.cpp: processes of a job, and comparisons of jobs.
int train(const ParsedArguments& arguments, Context& context);
int run_program(const ParsedArguments& arguments, Context& context);
/// The default of hang_max_ms of run_program(), and of coordinator() with the model `program`: a
/// program may do more work between its steps than Mayfly's workers.
inline constexpr std::uint32_t kProgramHangMaxMs = 60000;
/// Settings that run_program() refuses, because a program decides these things itself.
[[nodiscard]] const std::set<std::string>& settings_of_networks();
/// Settings that run_program() refuses, because they have no effect in the library for programs.
[[nodiscard]] const std::set<std::string>& settings_of_our_workers();
int worker(const ParsedArguments& arguments, Context& context);
int ps_server(const ParsedArguments& arguments, Context& context);
int coordinator(const ParsedArguments& arguments, Context& context);
int compare(const ParsedArguments& arguments, Context& context);
int tune_switch(const ParsedArguments& arguments, Context& context);
/// The default settings of the jobs of compare() and tune_switch().
[[nodiscard]] engine::JobConfig compared_defaults();
/// The secret of a job whose processes are started by hand.
int token(const ParsedArguments& arguments, Context& context);
/// An archive of this program, to install it on other machines.
int bundle(const ParsedArguments& arguments, Context& context);

// operator_commands.cpp: queries and orders to a running job.
int status(const ParsedArguments& arguments, Context& context);
int scale(const ParsedArguments& arguments, Context& context);
int give_up(const ParsedArguments& arguments, Context& context);
int drain(const ParsedArguments& arguments, Context& context);
int pause(const ParsedArguments& arguments, Context& context);
int resume(const ParsedArguments& arguments, Context& context);
int stop(const ParsedArguments& arguments, Context& context);

// cloud_commands.cpp: a job's servers.
int cloud(const ParsedArguments& arguments, Context& context);

// inspect_command.cpp: the computation of a network on this machine, or the content of a
// checkpoint.
int inspect(const ParsedArguments& arguments, Context& context);

// checkpoint_commands.cpp: checkpoints on disk.
int inspect_checkpoint(const ParsedArguments& arguments, Context& context);
int digest(const ParsedArguments& arguments, Context& context);
// evaluate.cpp: the accuracy of a checkpoint, or of every checkpoint of a run.
int evaluate(const ParsedArguments& arguments, Context& context);
int evaluator(const ParsedArguments& arguments, Context& context);

// weight_commands.cpp: weights for and from PyTorch.
int export_weights(const ParsedArguments& arguments, Context& context);
int import_weights(const ParsedArguments& arguments, Context& context);

// profile_command.cpp: how the time of a run divides.
int profile(const ParsedArguments& arguments, Context& context);
// dashboard_command.cpp: the records of runs as a page.
int dashboard(const ParsedArguments& arguments, Context& context);

// plan_command.cpp: predictions from measurements.
int plan(const ParsedArguments& arguments, Context& context);

// data_command.cpp: synthetic data sets.
int data(const ParsedArguments& arguments, Context& context);

// documentation.cpp: manual pages and shell completions.
int documentation(const ParsedArguments& arguments, Context& context);

// cli.cpp
int version(const ParsedArguments& arguments, Context& context);

/// A subcommand: the words that it accepts, and its function, which returns the process's exit
/// code.
struct Subcommand {
  CommandSpec spec;
  int (*run)(const ParsedArguments& arguments, Context& context);
};

/// All subcommands except `bench`, whose words are not parsed here.
[[nodiscard]] const std::vector<Subcommand>& subcommands();

/// The whole program after main's set-up. `words` are the arguments without the program's name.
int run_cli(const std::vector<std::string>& words, Context& context);

/// True if these words (without the program's name) start a worker, so that main forks the sentinel
/// before anything else. Has no effects and allocates hardly any memory.
[[nodiscard]] bool starts_a_worker(const std::vector<std::string>& words, bool in_launcher);

}  // namespace mayfly::cli
