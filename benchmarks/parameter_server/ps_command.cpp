#include "benchmarks/bench_arguments.hpp"

namespace mayfly::bench {
namespace {

cli::CommandSpec ps_spec() {
  cli::CommandSpec spec;
  spec.name = "bench ps";
  spec.help = "parameter servers: CPU per GB beside plain sockets, and the cost of a switch";
  spec.options = {{"sizes", "LIST", "bytes of the parameters (default 2M,100M)"},
                  {"workers", "N", "(default 2)"},
                  {"shards", "N", "(default 1)"},
                  {"rounds", "N", "of all in turn (default 5)"},
                  {"gigabytes", "X", "moved by each in a round (default 2)"},
                  {"json", "", "JSON lines: every measurement, then medians"}};
  return spec;
}

Result<PsBenchOptions> ps_options(const cli::ParsedArguments& arguments) {
  constexpr std::uint32_t kThreadsMax = 64;
  PsBenchOptions options;
  options.json = arguments.has("json");
  TRY(read_sizes(arguments, options.sizes));
  TRY(cli::read_number(arguments, "workers", options.workers));
  TRY(cli::read_number(arguments, "shards", options.shards));
  TRY(cli::read_number(arguments, "rounds", options.rounds));
  TRY(cli::read_number(arguments, "gigabytes", options.gigabytes));
  for (const std::size_t bytes : options.sizes) {
    if (bytes / sizeof(float) < options.shards) {
      return Error{Errc::kInvalidInput, "--sizes: a shard would have nothing"};
    }
  }
  if (options.workers > kThreadsMax || options.shards > kThreadsMax) {
    return Error{Errc::kInvalidInput, "--workers and --shards are at most 64"};
  }
  return options;
}

}  // namespace

BenchCommand ps_command() {
  return make_command(ps_spec(), ps_options, &Benches::ps);
}

}  // namespace mayfly::bench
