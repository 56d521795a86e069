// `mayfly bench ps`.

#include "cli/bench_arguments.hpp"

namespace mayfly::cli {
namespace {

CommandSpec ps_spec() {
  CommandSpec spec;
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

int start_ps(const ParsedArguments& arguments, Context& context) {
  constexpr std::uint32_t kThreadsMax = 64;
  engine::PsBenchOptions options;
  options.json = arguments.has("json");
  for (const Result<void>& read :
       {read_sizes(arguments, options.sizes), read_number(arguments, "workers", options.workers),
        read_number(arguments, "shards", options.shards),
        read_number(arguments, "rounds", options.rounds),
        read_number(arguments, "gigabytes", options.gigabytes)}) {
    if (!read.ok()) {
      return context.complain(read.error());
    }
  }
  for (const std::size_t bytes : options.sizes) {
    if (bytes / sizeof(float) < options.shards) {
      return context.complain("--sizes: a shard would have nothing", kExitUsage);
    }
  }
  if (options.workers > kThreadsMax || options.shards > kThreadsMax) {
    return context.complain("--workers and --shards are at most 64", kExitUsage);
  }
  return context.services.bench_ps(options);
}

}  // namespace

std::string bench_ps_help() {
  return ps_spec().help;
}

int run_bench_ps(const std::vector<std::string>& words, Context& context) {
  return run_with_options(ps_spec(), words, context,
                          [&context](const ParsedArguments& a) { return start_ps(a, context); });
}

}  // namespace mayfly::cli
