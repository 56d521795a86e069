#pragma once

#include <string>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/context.hpp"

namespace mayfly::cli {

/// A subcommand: what it accepts and what it does with it. Returns the process's exit code.
struct Subcommand {
  CommandSpec spec;
  int (*run)(const ParsedArguments& arguments, Context& context);
};

/// All subcommands but `bench`, which takes its words unparsed.
[[nodiscard]] const std::vector<Subcommand>& subcommands();

/// The whole program after main's set-up. `words` are the arguments without the program's name.
int run_cli(const std::vector<std::string>& words, Context& context);

/// True if these words (without the program's name) start a worker, so that main forks the sentinel
/// before anything else. Looks only; allocates nothing to speak of.
[[nodiscard]] bool starts_a_worker(const std::vector<std::string>& words, bool in_launcher);

}  // namespace mayfly::cli
