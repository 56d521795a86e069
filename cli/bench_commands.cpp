// The benchmarks that `mayfly bench` offers.

#include <algorithm>

#include "cli/bench.hpp"
#include "cli/bench_arguments.hpp"
#include "engine/bench/data_bench.hpp"
#include "engine/bench/step/step_bench.hpp"
#include "engine/config/device_choice.hpp"

namespace mayfly::cli {
namespace {

CommandSpec step_spec() {
  CommandSpec spec;
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

Result<engine::StepBenchOptions> step_options(const ParsedArguments& arguments) {
  engine::JobConfig config;
  for (const auto& [name, text] : arguments.settings) {
    TRY(engine::apply_setting(config, name, text, "flag"));
  }
  TRY(engine::validate(config));
  engine::StepBenchOptions options;
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
  for (const Result<void>& read : {read_number(arguments, "batch", options.batch),
                                   read_number(arguments, "global-batch", options.global_batch),
                                   read_number(arguments, "seconds", options.seconds)}) {
    if (!read.ok()) {
      return read.error();
    }
  }
  return options;
}

int run_bench_step(const std::vector<std::string>& words, Context& context) {
  return run_with_options(step_spec(), words, context, [&context](const ParsedArguments& a) {
    const Result<engine::StepBenchOptions> options = step_options(a);
    return options.ok() ? context.services.bench_step(options.value())
                        : context.complain(options.error());
  });
}

CommandSpec data_spec() {
  CommandSpec spec;
  spec.name = "bench data";
  spec.help = "images per second of reading, decoding, cropping and normalising";
  spec.options = {{"seconds", "S", "measuring time (default 5)"}, {"json", "", "one JSON object"}};
  spec.settings = {"data", "image_size", "threads", "skip_corrupt"};
  return spec;
}

int start_data(const ParsedArguments& arguments, Context& context) {
  engine::JobConfig config;
  for (const auto& [name, text] : arguments.settings) {
    if (Result<void> set = engine::apply_setting(config, name, text, "flag"); !set.ok()) {
      return context.complain(set.error());
    }
  }
  engine::DataBenchOptions options;
  options.data = config.data;
  options.image_size = config.image_size;
  options.threads = std::max(1U, config.threads);
  options.skip_corrupt = config.skip_corrupt;
  options.json = arguments.has("json");
  if (Result<void> read = read_number(arguments, "seconds", options.seconds); !read.ok()) {
    return context.complain(read.error());
  }
  return context.services.bench_data(options);
}

int run_bench_data(const std::vector<std::string>& words, Context& context) {
  return run_with_options(data_spec(), words, context,
                          [&context](const ParsedArguments& a) { return start_data(a, context); });
}

}  // namespace

int run_with_options(const CommandSpec& spec, const std::vector<std::string>& words,
                     Context& context, const std::function<int(const ParsedArguments&)>& run) {
  const Result<ParsedArguments> parsed = parse_arguments(spec, words);
  if (!parsed.ok()) {
    return context.complain(parsed.error());
  }
  if (parsed.value().help_asked) {
    context.out << help_text(spec);
    return kExitDone;
  }
  return run(parsed.value());
}

const std::vector<BenchCommand>& bench_commands() {
  static const std::vector<BenchCommand> list = [] {
    std::vector<BenchCommand> all = {{"allreduce", bench_allreduce_help(), run_bench_allreduce},
                                     {"data", data_spec().help, run_bench_data},
                                     {"engines", bench_engines_help(), run_bench_engines},
                                     {"ps", bench_ps_help(), run_bench_ps},
                                     {"reform", bench_reform_help(), run_bench_reform},
                                     {"step", step_spec().help, run_bench_step}};
    for (BenchCommand& command : elastic_bench_commands()) {
      all.push_back(std::move(command));
    }
    std::sort(all.begin(), all.end(),
              [](const BenchCommand& a, const BenchCommand& b) { return a.name < b.name; });
    return all;
  }();
  return list;
}

}  // namespace mayfly::cli
