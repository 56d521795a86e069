#include <algorithm>

#include "benchmarks/bench_arguments.hpp"
#include "engine/config/device_choice.hpp"

namespace mayfly::bench {
namespace {

cli::CommandSpec step_spec() {
  cli::CommandSpec spec;
  spec.name = "bench step";
  spec.help = "images per second of forward, backward and update";
  spec.options = {{"batch", "N", "microbatch of each thread (default 16)"},
                  {"global-batch", "N",
                   "images per update, all threads together (default 128, or less to fit; ImageNet "
                   "networks: one microbatch of each thread)"},
                  {"seconds", "S", "measuring time (default 5)"},
                  {"images", "WHERE", "with a GPU: host (default), as photographs are, or gpu"},
                  {"layers", "", "time per layer too"},
                  {"json", "", "JSON lines: the step, then each layer"}};
  spec.settings = {"model", "image_size",   "threads", "isa",
                   "dtype", "conv_kernels", "device",  "backend"};
  return spec;
}

Result<StepBenchOptions> step_options(const cli::ParsedArguments& arguments) {
  engine::JobConfig config;
  TRY(read_settings(arguments, config));
  TRY(engine::validate(config));
  StepBenchOptions options;
  options.model = config.model;
  options.image_size = config.image_size;
  options.threads = std::max(1U, config.threads);
  options.isa = config.isa;
  options.conv_kernels = config.conv_kernels;
  options.dtype = config.dtype;
  options.device = config.device;
  options.sums_on_gpu = config.backend == "nccl";
  options.layers = arguments.has("layers");
  options.json = arguments.has("json");
  if (options.layers && engine::uses_cuda(options.device)) {
    return Error{Errc::kInvalidInput,
                 "--layers times the layers of a CPU, but device is " + options.device};
  }
  const std::string images = arguments.option("images", "host");
  options.images_on_gpu = images == "gpu";
  if (!options.images_on_gpu && images != "host") {
    return Error{Errc::kInvalidInput, "--images " + images + " is neither host nor gpu"};
  }
  if (options.images_on_gpu && !engine::uses_cuda(options.device)) {
    return Error{Errc::kInvalidInput, "--images gpu needs a GPU, but device is " + options.device};
  }
  if (config.backend != "tcp" && !options.sums_on_gpu) {
    return Error{Errc::kInvalidInput,
                 "--backend " + config.backend +
                     ": a step is measured without its exchange; nccl, with a GPU, has its sums on "
                     "the GPU, all others alike on the host (tcp)"};
  }
  TRY(cli::read_number(arguments, "batch", options.batch));
  TRY(cli::read_number(arguments, "global-batch", options.global_batch));
  TRY(cli::read_number(arguments, "seconds", options.seconds));
  return options;
}

}  // namespace

BenchCommand step_command() {
  return make_command(step_spec(), step_options, &Benches::step);
}

}  // namespace mayfly::bench
