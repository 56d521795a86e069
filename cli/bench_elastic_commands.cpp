// The benchmarks of elasticity that `mayfly bench` offers.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "cli/bench_arguments.hpp"

namespace mayfly::cli {
namespace {

using engine::ElasticBenchOptions;

const std::vector<std::string> kJobSettings = {
    "model",          "data",        "image_size", "workers",      "threads",
    "backend",        "seed",        "run_dir",    "isa",          "global_batch",
    "microbatch",     "reduction",   "wire",       "resident_mib", "silence_max_ms",
    "starved_max_ms", "hang_max_ms", "rebalance",  "bucket_kib",   "dtype"};

const OptionSpec kEventsAsJson = {"json", "",
                                  "one JSON object per event and one with the percentiles"};

CommandSpec spec_of(const std::string& name, const std::string& help,
                    std::vector<OptionSpec> options) {
  CommandSpec spec;
  spec.name = "bench " + name;
  spec.help = help;
  spec.options = std::move(options);
  spec.options.push_back(kEventsAsJson);
  spec.settings = kJobSettings;
  return spec;
}

CommandSpec recovery_spec() {
  return spec_of(
      "recovery", "milliseconds from the loss of a local worker to the next step",
      {{"events", "N", "how many (default 30)"},
       {"kills", "N", "the same"},
       {"fault", "NAME", "kill (default), stop (SIGSTOP) or vanish (packets lost; needs root)"}});
}
CommandSpec join_spec() {
  return spec_of(
      "join", "what a new worker costs those who train, in milliseconds",
      {{"events", "N", "how many (default 30)"},
       {"own-core", "",
        "the new worker has the last core to itself, as if on its own machine; the others "
        "share the rest"}});
}
CommandSpec drain_spec() {
  return spec_of("drain", "milliseconds from SIGTERM until a worker is gone; nothing redone",
                 {{"events", "N", "how many (default 30)"}});
}
CommandSpec detect_spec() {
  return spec_of("detect", "how soon a fault is noticed, and that nothing else is taken for one",
                 {{"events", "N", "how many (default 30)"},
                  {"fault", "NAME", "kill (default), stop or hang"},
                  {"oversubscribe", "N",
                   "no faults: busy threads per core, and count whom that evicts (must be 0)"},
                  {"minutes", "M", "with --oversubscribe: for so long (default 1)"}});
}
CommandSpec goodput_spec() {
  return spec_of("goodput", "steps on a spot market against those of an ideal job",
                 {{"trace", "FILE", "rows MILLISECONDS,add|remove,NODE; see docs/benchmarks.md"},
                  {"speedup", "S", "trace seconds per second (default 60)"},
                  {"nodes-max", "K", "the trace is scaled to at most K workers (default 6)"},
                  {"kill-every", "SECONDS", "instead of a trace: a kill, and a replacement"},
                  {"minutes", "M", "stop after so long (with --kill-every: default 1)"}});
}

/// A job that never ends by itself.
engine::JobConfig endless_job() {
  engine::JobConfig config;
  config.workers = 4;
  config.threads = 1;
  config.data = "procedural:4096";
  config.steps = 100'000'000;
  config.lr = 0.001;  // with more, large networks on small batches diverge and repeat steps
  config.lr_schedule = "constant";
  config.warmup_epochs = 0;
  config.evaluate = false;
  config.tensorboard = false;
  config.quiet = true;
  config.rebalance =
      false;  // workers share cores here, and each change of shares is a change of view
  return config;
}

Error bad(const std::string& text) {
  return {Errc::kInvalidInput, text};
}

Result<ElasticBenchOptions> options_of(const ParsedArguments& arguments,
                                       const std::vector<std::string>& faults) {
  ElasticBenchOptions options;
  options.job = endless_job();
  for (const auto& [name, text] : arguments.settings) {
    TRY(engine::apply_setting(options.job, name, text, "flag"));
  }
  TRY(engine::validate(options.job));
  options.json = arguments.has("json");
  options.own_core = arguments.has("own-core");
  options.trace = arguments.option("trace");
  options.fault = arguments.option("fault", options.fault);
  for (const Result<void>& read : {read_number(arguments, "kills", options.events),
                                   read_number(arguments, "events", options.events),
                                   read_number(arguments, "minutes", options.minutes),
                                   read_number(arguments, "oversubscribe", options.oversubscribe),
                                   read_number(arguments, "speedup", options.speedup),
                                   read_number(arguments, "nodes-max", options.nodes_max),
                                   read_number(arguments, "kill-every", options.kill_every)}) {
    if (!read.ok()) {
      return read.error();
    }
  }
  if (std::find(faults.begin(), faults.end(), options.fault) == faults.end()) {
    return bad(fmt::format("--fault {}: not one of {}", options.fault, fmt::join(faults, ", ")));
  }
  return options;
}

/// Nobody leaves in a join, so it has something to measure with a single worker.
Result<void> check_workers(const std::string& bench, const ElasticBenchOptions& options) {
  if (options.job.workers < 2 && bench != "join") {
    return bad("--workers 1: at least 2 are needed, one must go on");
  }
  return {};
}

int run(const CommandSpec& spec, const std::vector<std::string>& words, Context& context,
        const std::string& name, const std::vector<std::string>& faults) {
  return run_with_options(spec, words, context, [&](const ParsedArguments& arguments) {
    const Result<ElasticBenchOptions> options = options_of(arguments, faults);
    if (!options.ok()) {
      return context.complain(options.error());
    }
    if (Result<void> enough = check_workers(name, options.value()); !enough.ok()) {
      return context.complain(enough.error());
    }
    if (name == "goodput" && options.value().trace.empty() == (options.value().kill_every <= 0)) {
      return context.complain("bench goodput needs --trace FILE or --kill-every SECONDS",
                              kExitUsage);
    }
    return context.services.bench_elastic(name, options.value());
  });
}

}  // namespace

std::vector<BenchCommand> elastic_bench_commands() {
  return {
      {"recovery", recovery_spec().help,
       [](const std::vector<std::string>& words, Context& context) {
         return run(recovery_spec(), words, context, "recovery", {"kill", "stop", "vanish"});
       }},
      {"join", join_spec().help,
       [](const std::vector<std::string>& words, Context& context) {
         return run(join_spec(), words, context, "join", {"kill"});
       }},
      {"drain", drain_spec().help,
       [](const std::vector<std::string>& words, Context& context) {
         return run(drain_spec(), words, context, "drain", {"kill"});
       }},
      {"detect", detect_spec().help,
       [](const std::vector<std::string>& words, Context& context) {
         return run(detect_spec(), words, context, "detect", {"kill", "stop", "hang"});
       }},
      {"goodput", goodput_spec().help, [](const std::vector<std::string>& words, Context& context) {
         return run(goodput_spec(), words, context, "goodput", {"kill"});
       }}};
}

}  // namespace mayfly::cli
