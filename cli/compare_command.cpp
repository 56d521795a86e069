// `mayfly compare`: the same job under several kinds of synchronisation.

#include "cli/bench_arguments.hpp"
#include "cli/commands.hpp"

namespace mayfly::cli {

int compare(const ParsedArguments& arguments, Context& context) {
  engine::CompareOptions options;
  options.quick = arguments.has("quick");
  options.json = arguments.has("json");
  options.folder = arguments.option("output", "comparison");
  options.variants = arguments.option("variants", options.variants);
  options.conditions = arguments.option("conditions", options.conditions);
  options.settings = arguments.settings;
  options.seeds = options.quick ? 1 : options.seeds;
  for (const Result<void>& read : {read_number(arguments, "seeds", options.seeds),
                                   read_number(arguments, "first-seed", options.first_seed)}) {
    if (!read.ok()) {
      return context.complain(read.error());
    }
  }
  return context.services.compare(options);
}

}  // namespace mayfly::cli
