// `mayfly bench engines`.

#include "cli/bench_arguments.hpp"

namespace mayfly::cli {
namespace {

CommandSpec engines_spec() {
  CommandSpec spec;
  spec.name = "bench engines";
  spec.help = "times cuDNN's engines on a GPU and writes the engine table (docs/gpu.md)";
  spec.options = {{"batch", "N", "microbatch (default 64)"},
                  {"rounds", "N", "of all engines in turn (default 5)"},
                  {"seconds", "S", "no convolution is begun after so long (default 600)"},
                  {"output", "FILE", "the table, added to if it is there (default: its kind)"},
                  {"json", "", "JSON lines: every convolution, then the table"}};
  spec.settings = {"model", "image_size", "dtype", "device"};
  return spec;
}

int start_engines(const ParsedArguments& arguments, Context& context) {
  engine::JobConfig config;
  config.model = "resnet50";
  config.dtype = "bf16";
  config.device = "cuda";
  for (const auto& [name, text] : arguments.settings) {
    if (Result<void> set = engine::apply_setting(config, name, text, "flag"); !set.ok()) {
      return context.complain(set.error());
    }
  }
  engine::EnginesBenchOptions options;
  options.model = config.model;
  options.image_size = config.image_size;
  options.dtype = config.dtype;
  options.device = config.device;
  options.output = arguments.option("output");
  options.json = arguments.has("json");
  for (const Result<void>& read : {read_number(arguments, "batch", options.batch),
                                   read_number(arguments, "rounds", options.rounds),
                                   read_number(arguments, "seconds", options.seconds)}) {
    if (!read.ok()) {
      return context.complain(read.error());
    }
  }
  return context.services.bench_engines(options);
}

}  // namespace

std::string bench_engines_help() {
  return engines_spec().help;
}

int run_bench_engines(const std::vector<std::string>& words, Context& context) {
  return run_with_options(engines_spec(), words, context, [&context](const ParsedArguments& a) {
    return start_engines(a, context);
  });
}

}  // namespace mayfly::cli
