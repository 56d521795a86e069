#pragma once

#include <string>
#include <vector>

#include "cli/context.hpp"

namespace mayfly::cli {

/// `mayfly bench NAME [words...]`. Each prints one JSON object per line with --json.
struct BenchCommand {
  std::string name;
  std::string help;  ///< one line
  int (*run)(const std::vector<std::string>& words, Context& context);
};

/// The list that `mayfly bench` chooses from; a new benchmark is added in
/// bench_commands.cpp.
[[nodiscard]] const std::vector<BenchCommand>& bench_commands();

/// Runs the benchmark named by the first word.
int run_bench(const std::vector<std::string>& words, Context& context);

}  // namespace mayfly::cli
