#pragma once

// Functions that the commands of `mayfly bench` share: each command reads its flags and starts its
// benchmark.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/bench.hpp"
#include "cli/arguments.hpp"

namespace mayfly::bench {

// Each command is defined beside its benchmark.
[[nodiscard]] BenchCommand allreduce_command();
[[nodiscard]] BenchCommand data_command();
[[nodiscard]] BenchCommand plan_command();
[[nodiscard]] BenchCommand ps_command();
[[nodiscard]] BenchCommand reform_command();
[[nodiscard]] BenchCommand step_command();
/// The benchmarks that lose, add and drain workers.
[[nodiscard]] std::vector<BenchCommand> elastic_commands();

/// The command NAME of the spec "bench NAME": parses the words, answers --help, and reports errors;
/// otherwise it returns the exit code of `start`.
[[nodiscard]] BenchCommand make_command(
    const cli::CommandSpec& spec,
    std::function<int(const cli::ParsedArguments&, BenchContext&)> start);

/// The same for a benchmark whose options `read` makes from the arguments.
template <typename Options>
BenchCommand make_command(const cli::CommandSpec& spec,
                          Result<Options> (*read)(const cli::ParsedArguments&),
                          std::function<int(const Options&)> Benches::*bench) {
  return make_command(spec,
                      [read, bench](const cli::ParsedArguments& arguments, BenchContext& context) {
                        const Result<Options> options = read(arguments);
                        return options.ok() ? (context.benches.*bench)(options.value())
                                            : context.complain(options.error());
                      });
}

/// Puts the settings among the arguments into `config`.
Result<void> read_settings(const cli::ParsedArguments& arguments, engine::JobConfig& config);

/// Reads --sizes: bytes with K or M, separated by commas; keeps `sizes` if it is not given.
Result<void> read_sizes(const cli::ParsedArguments& arguments, std::vector<std::size_t>& sizes);

inline constexpr std::uint32_t kRanksMax = 64;

/// The error "--FLAG TEXT: not EXPECTED".
[[nodiscard]] Error bad_flag(const std::string& flag, const std::string& text,
                             const std::string& expected);

}  // namespace mayfly::bench
