#include "benchmarks/bench_arguments.hpp"

namespace mayfly::bench {
namespace {

cli::CommandSpec engines_spec() {
  cli::CommandSpec spec;
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

Result<EnginesBenchOptions> engines_options(const cli::ParsedArguments& arguments) {
  engine::JobConfig config;
  config.model = "resnet50";
  config.dtype = "bf16";
  config.device = "cuda";
  TRY(read_settings(arguments, config));
  EnginesBenchOptions options;
  options.model = config.model;
  options.image_size = config.image_size;
  options.dtype = config.dtype;
  options.device = config.device;
  options.output = arguments.option("output");
  options.json = arguments.has("json");
  TRY(cli::read_number(arguments, "batch", options.batch));
  TRY(cli::read_number(arguments, "rounds", options.rounds));
  TRY(cli::read_number(arguments, "seconds", options.seconds));
  return options;
}

}  // namespace

BenchCommand engines_command() {
  return make_command(engines_spec(), engines_options, &Benches::engines);
}

}  // namespace mayfly::bench
