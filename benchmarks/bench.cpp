#include "benchmarks/bench.hpp"

#include <algorithm>

#include "benchmarks/bench_arguments.hpp"
#include "benchmarks/ranks/rank_session.hpp"
#include "engine/config/config.hpp"

namespace mayfly::bench {
namespace {

std::string bench_help() {
  std::string text = "Usage: mayfly bench NAME [flags]\n";
  for (const BenchCommand& bench : bench_commands()) {
    const std::size_t blanks = bench.name.size() < 10 ? 11 - bench.name.size() : 1;
    text += "  " + bench.name + std::string(blanks, ' ') + bench.help + "\n";
  }
  return text;
}

}  // namespace

const std::vector<BenchCommand>& bench_commands() {
  static const std::vector<BenchCommand> list = [] {
    std::vector<BenchCommand> all = elastic_commands();
    for (BenchCommand& command : std::vector{allreduce_command(), data_command(), plan_command(),
                                             ps_command(), reform_command(), step_command()}) {
      all.push_back(std::move(command));
    }
    std::sort(all.begin(), all.end(),
              [](const BenchCommand& a, const BenchCommand& b) { return a.name < b.name; });
    return all;
  }();
  return list;
}

int run_bench(const std::vector<std::string>& words, BenchContext& context) {
  if (words.empty()) {
    return context.complain("bench needs the name of a benchmark (see mayfly bench --help)",
                            cli::kExitUsage);
  }
  const std::vector<std::string> rest(words.begin() + 1, words.end());
  if (words[0] == "--help" || words[0] == "--help-all" || words[0] == "-h") {
    context.out << bench_help();
    return cli::kExitDone;
  }
  if (words[0] == kRankCommand) {
    return context.benches.rank(rest);
  }
  std::vector<std::string> names;
  for (const BenchCommand& bench : bench_commands()) {
    if (bench.name == words[0]) {
      return bench.run(rest, context);
    }
    names.push_back(bench.name);
  }
  return context.complain(
      "unknown benchmark '" + words[0] + "'" + engine::suggestion(words[0], names),
      cli::kExitUsage);
}

}  // namespace mayfly::bench
