#include "benchmarks/step/step_bench.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <barrier>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "base/try_assign.hpp"
#include "benchmarks/bench_arguments.hpp"
#include "benchmarks/step/gpu_step_bench.hpp"
#include "benchmarks/step/step_loop.hpp"
#include "benchmarks/step/step_report.hpp"
#include "engine/config/derived_settings.hpp"
#include "engine/membership/exit_codes.hpp"
#include "nn/cpu/cpu_engine.hpp"

namespace mayfly::bench {
namespace {

constexpr std::uint32_t kUsualGlobalBatch = 128;

struct ThreadOutcome {
  Result<void> built;
  ThreadRate rate;
  StepSeconds times;
};

/// All threads measure at the same time, because a single thread would have all memory bandwidth of
/// the machine.
void run_thread(const StepBenchOptions& options, nn::Dtype dtype, StepLoop& loop,
                std::barrier<>& start, ThreadOutcome& outcome) {
  outcome.built = loop.prepare(dtype, options.layers);
  if (!outcome.built.ok()) {
    start.arrive_and_drop();
    return;
  }
  (void)loop.run_for(options.seconds * kWarmUpShare);
  start.arrive_and_wait();
  outcome.rate = loop.run_for(options.seconds);
  outcome.times = loop.times();
}

/// Selects the instruction set; returns everything that is known before the first step.
Result<StepBenchResult> describe(const StepBenchOptions& options, nn::Dtype dtype,
                                 const nn::Model& model) {
  TRY(nn::cpu::select_conv_kernels(options.conv_kernels));
  TRY_ASSIGN(std::string isa, nn::cpu::select_isa(options.isa, dtype));
  TRY_ASSIGN(const std::uint32_t global_batch, resolve_global_batch(options, model));
  StepBenchResult result;
  result.model = model.name;
  result.dtype = options.dtype;
  result.isa = isa;
  result.conv_kernels = nn::cpu::conv_kernels_fingerprint();
  result.image_size = model.image_size;
  result.classes = model.classes;
  result.batch = options.batch;
  result.global_batch = global_batch;
  result.cost = step_cost(model, options.batch, dtype);
  if (options.layers) {
    result.kernels = nn::cpu::kernel_choices(nn::cpu::selected_isa(), model);
  }
  return result;
}

Result<void> measure(const StepBenchOptions& options, nn::Dtype dtype, const nn::Model& model,
                     StepBenchResult& result) {
  result.machine = measure_machine(options.threads);
  std::vector<ThreadOutcome> outcomes(options.threads);
  std::barrier<> start(static_cast<std::ptrdiff_t>(options.threads));
  std::vector<std::thread> threads;
  for (ThreadOutcome& outcome : outcomes) {
    threads.emplace_back([&] {
      StepLoop loop(model, options.batch, result.global_batch / options.threads);
      run_thread(options, dtype, loop, start, outcome);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const ThreadOutcome& outcome : outcomes) {
    if (!outcome.built.ok()) {
      return outcome.built;
    }
    result.threads.push_back(outcome.rate);
    result.times += outcome.times;
  }
  return {};
}

int refuse_step(const Error& error) {
  log::error(error.detail);
  return error.code == Errc::kInvalidInput || error.code == Errc::kUnsupported
             ? engine::kExitUsage
             : engine::kExitFailed;
}

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
  spec.settings = {"model",        "image_size", "threads", "isa",      "dtype",
                   "conv_kernels", "device",     "backend", "reduction"};
  spec.defaults.threads = 1;
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
  options.exact = config.reduction == "exact";
  options.layers = arguments.has("layers");
  options.json = arguments.has("json");
  if (options.layers && engine::uses_cuda(options.device)) {
    return Error{Errc::kInvalidInput,
                 "--layers times the layers of a CPU, but device is " + options.device};
  }
  if (!options.exact && !engine::uses_cuda(options.device)) {
    return Error{Errc::kInvalidInput, "--reduction " + config.reduction +
                                          " needs a GPU, but device is " + options.device +
                                          ": on CPUs a step is measured with exact sums"};
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

Result<std::uint32_t> resolve_global_batch(const StepBenchOptions& options,
                                           const nn::Model& model) {
  const std::uint64_t together = std::uint64_t{options.threads} * options.batch;
  if (options.global_batch == 0) {
    const std::uint64_t microbatches =
        model.stem_pool ? 1 : std::max<std::uint64_t>(1, kUsualGlobalBatch / together);
    return static_cast<std::uint32_t>(microbatches * together);
  }
  if (options.global_batch % together != 0) {
    return Error{Errc::kInvalidInput,
                 fmt::format("global_batch {} is not a multiple of {} ({} threads x microbatch {})",
                             options.global_batch, together, options.threads, options.batch)};
  }
  return options.global_batch;
}

int bench_step(const StepBenchOptions& options) {
  const Result<nn::Dtype> dtype = nn::parse_dtype(options.dtype);
  if (!dtype.ok()) {
    return refuse_step(dtype.error());
  }
  const Result<nn::Model> model =
      nn::make_usual_model(options.model, static_cast<int>(std::min(options.image_size, 1U << 20)));
  if (!model.ok()) {
    return refuse_step(model.error());
  }
  if (engine::uses_cuda(options.device)) {
    return bench_gpu_step(options, model.value(), dtype.value());
  }
  Result<StepBenchResult> result = describe(options, dtype.value(), model.value());
  if (!result.ok()) {
    return refuse_step(result.error());
  }
  if (const Result<void> done = measure(options, dtype.value(), model.value(), result.value());
      !done.ok()) {
    return refuse_step(done.error());
  }
  fmt::print("{}", options.json ? to_json_lines(result.value()) : to_text(result.value()));
  return engine::kExitDone;
}

BenchCommand step_command() {
  return make_command(step_spec(), step_options, &Benches::step);
}

}  // namespace mayfly::bench
