#pragma once

// What the files of `mayfly bench`'s commands share.

#include <functional>
#include <string>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/bench.hpp"
#include "cli/context.hpp"

namespace mayfly::cli {

/// Parses the words, answers --help, complains of what is wrong; else the exit code of `run`.
int run_with_options(const CommandSpec& spec, const std::vector<std::string>& words,
                     Context& context, const std::function<int(const ParsedArguments&)>& run);

// bench_group_commands.cpp: communication.
int run_bench_allreduce(const std::vector<std::string>& words, Context& context);
int run_bench_reform(const std::vector<std::string>& words, Context& context);
[[nodiscard]] std::string bench_allreduce_help();
[[nodiscard]] std::string bench_reform_help();

/// --sizes: bytes with K or M, between commas; keeps `sizes` if it is not given.
Result<void> read_sizes(const ParsedArguments& arguments, std::vector<std::size_t>& sizes);

// bench_ps_command.cpp: parameter servers.
int run_bench_ps(const std::vector<std::string>& words, Context& context);
[[nodiscard]] std::string bench_ps_help();

// bench_engines_command.cpp: engine tables of GPUs.
int run_bench_engines(const std::vector<std::string>& words, Context& context);
[[nodiscard]] std::string bench_engines_help();

// bench_elastic_commands.cpp: losing, adding and draining workers.
[[nodiscard]] std::vector<BenchCommand> elastic_bench_commands();

}  // namespace mayfly::cli
