// `mayfly compare`: the same job under several kinds of synchronisation; `mayfly tune-switch`: when
// to switch from one to another.

#include "cli/arguments.hpp"
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

int tune_switch(const ParsedArguments& arguments, Context& context) {
  engine::TuneSwitchOptions options;
  options.quick = arguments.has("quick");
  options.json = arguments.has("json");
  options.folder = arguments.option("output", "tune-switch");
  options.then = arguments.option("then", options.then);
  options.condition = arguments.option("condition", options.condition);
  options.settings = arguments.settings;
  options.runs = options.quick ? 1 : options.runs;
  options.probes = options.quick ? 3 : options.probes;
  for (const Result<void>& read : {read_number(arguments, "tolerance", options.tolerance),
                                   read_number(arguments, "runs", options.runs),
                                   read_number(arguments, "probes", options.probes),
                                   read_number(arguments, "first-seed", options.first_seed)}) {
    if (!read.ok()) {
      return context.complain(read.error());
    }
  }
  return context.services.tune_switch(options);
}

}  // namespace mayfly::cli
