#include <fmt/format.h>

#include "benchmarks/bench_arguments.hpp"

namespace mayfly::bench {
namespace {

cli::CommandSpec reform_spec() {
  cli::CommandSpec spec;
  spec.name = "bench reform";
  spec.help = "milliseconds from being told of a loss to the next view's first right sum";
  spec.options = {{"ranks", "N", "members before each kill (default 8)"},
                  {"backend", "NAME", "tcp, unix (default) or gloo"},
                  {"kills", "N", "how many (default 50)"},
                  {"json", "", "one JSON object per trial and one with the percentiles"}};
  return spec;
}

Result<ReformBenchOptions> reform_options(const cli::ParsedArguments& arguments) {
  ReformBenchOptions options;
  options.backend = arguments.option("backend", options.backend);
  options.json = arguments.has("json");
  TRY(cli::read_number(arguments, "ranks", options.ranks));
  TRY(cli::read_number(arguments, "kills", options.kills));
  if (options.ranks < 2 || options.ranks > kRanksMax) {
    return bad_flag("ranks", std::to_string(options.ranks),
                    fmt::format("a number from 2 to {}", kRanksMax));
  }
  if (options.backend != "tcp" && options.backend != "unix" && options.backend != "gloo") {
    return bad_flag("backend", options.backend, "tcp, unix or gloo");
  }
  return options;
}

}  // namespace

BenchCommand reform_command() {
  return make_command(reform_spec(), reform_options, &Benches::reform);
}

}  // namespace mayfly::bench
