#include "cli/bench.hpp"

#include "engine/config/config.hpp"

namespace mayfly::cli {
namespace {

std::string bench_help() {
  std::string text = "Usage: mayfly bench NAME [flags]\n";
  for (const BenchCommand& bench : bench_commands()) {
    text += "  " + bench.name + "  " + bench.help + "\n";
  }
  return text;
}

}  // namespace

int run_bench(const std::vector<std::string>& words, Context& context) {
  if (!words.empty() && (words[0] == "--help" || words[0] == "-h")) {
    context.out << bench_help();
    return kExitDone;
  }
  std::vector<std::string> names;
  for (const BenchCommand& bench : bench_commands()) {
    if (!words.empty() && bench.name == words[0]) {
      return bench.run({words.begin() + 1, words.end()}, context);
    }
    names.push_back(bench.name);
  }
  if (words.empty()) {
    return context.complain("bench needs the name of a benchmark (see mayfly bench --help)",
                            kExitUsage);
  }
  return context.complain(
      "unknown benchmark '" + words[0] + "'" + engine::suggestion(words[0], names), kExitUsage);
}

}  // namespace mayfly::cli
