#include <algorithm>

#include "benchmarks/bench_arguments.hpp"

namespace mayfly::bench {
namespace {

cli::CommandSpec data_spec() {
  cli::CommandSpec spec;
  spec.name = "bench data";
  spec.help = "images per second of reading, decoding, cropping and normalising";
  spec.options = {{"seconds", "S", "measuring time (default 5)"}, {"json", "", "one JSON object"}};
  spec.settings = {"data", "image_size", "threads", "skip_corrupt"};
  return spec;
}

Result<DataBenchOptions> data_options(const cli::ParsedArguments& arguments) {
  engine::JobConfig config;
  TRY(read_settings(arguments, config));
  DataBenchOptions options;
  options.data = config.data;
  options.image_size = config.image_size;
  options.threads = std::max(1U, config.threads);
  options.skip_corrupt = config.skip_corrupt;
  options.json = arguments.has("json");
  TRY(cli::read_number(arguments, "seconds", options.seconds));
  return options;
}

}  // namespace

BenchCommand data_command() {
  return make_command(data_spec(), data_options, &Benches::data);
}

}  // namespace mayfly::bench
