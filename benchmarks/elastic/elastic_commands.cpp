#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "benchmarks/bench_arguments.hpp"

namespace mayfly::bench {
namespace {

const std::vector<std::string> kJobSettings = {
    "model",           "data",        "image_size", "workers",      "threads",
    "backend",         "seed",        "run_dir",    "isa",          "global_batch",
    "microbatch",      "reduction",   "wire",       "resident_mib", "silence_max_ms",
    "starved_max_ms",  "hang_max_ms", "rebalance",  "bucket_kib",   "dtype",
    "observe_from_mib"};

const cli::OptionSpec kEventsAsJson = {"json", "",
                                       "one JSON object per event and one with the percentiles"};

/// A job that never ends by itself.
engine::JobConfig endless_job() {
  engine::JobConfig config;
  config.workers = 4;
  config.threads = 1;
  config.data = "procedural:4096";
  config.steps = 100'000'000;
  config.lr = 0.001;  // at a higher rate large networks on small batches diverge and repeat steps
  config.lr_schedule = "constant";
  config.warmup_epochs = 0;
  config.evaluate = false;
  config.tensorboard = false;
  config.quiet = true;
  config.rebalance =
      false;  // workers share cores here, and each change of shares is a change of view
  return config;
}

cli::CommandSpec spec_of(const std::string& name, const std::string& help,
                         std::vector<cli::OptionSpec> options) {
  cli::CommandSpec spec;
  spec.name = "bench " + name;
  spec.help = help;
  spec.options = std::move(options);
  spec.options.push_back(kEventsAsJson);
  spec.settings = kJobSettings;
  spec.defaults = endless_job();
  return spec;
}

cli::CommandSpec recovery_spec() {
  return spec_of(
      "recovery", "milliseconds from the loss of a local worker to the next step",
      {{"events", "N", "how many (default 30)"},
       {"kills", "N", "the same"},
       {"fault", "NAME", "kill (default), stop (SIGSTOP) or vanish (packets lost; needs root)"}});
}
cli::CommandSpec join_spec() {
  return spec_of(
      "join", "milliseconds by which a new worker delays the others",
      {{"events", "N", "how many (default 30)"},
       {"own-core", "",
        "the new worker has the last core to itself, as if on its own machine; the others "
        "share the rest"}});
}
cli::CommandSpec drain_spec() {
  return spec_of("drain", "milliseconds from SIGTERM until a worker is gone",
                 {{"events", "N", "how many (default 30)"}});
}
cli::CommandSpec detect_spec() {
  return spec_of(
      "detect", "milliseconds until a fault is detected; with --oversubscribe: false alarms",
      {{"events", "N", "how many (default 30)"},
       {"fault", "NAME", "kill (default), stop or hang"},
       {"hang-step", "N", "with --fault hang: the step in which a worker hangs (default 30)"},
       {"oversubscribe", "N",
        "no faults: N busy threads per core; counts evicted members (must be 0)"},
       {"minutes", "M", "with --oversubscribe: for so long (default 1)"}});
}
cli::CommandSpec goodput_spec() {
  return spec_of("goodput", "steps of a job on a spot market, compared with those of an ideal job",
                 {{"trace", "FILE", "rows MILLISECONDS,add|remove,NODE; see docs/benchmarks.md"},
                  {"speedup", "S", "trace seconds per second (default 60)"},
                  {"nodes-max", "K", "the trace is scaled to at most K workers (default 6)"},
                  {"kill-every", "SECONDS", "instead of a trace: a kill, and a replacement"},
                  {"minutes", "M", "stop after so long (with --kill-every: default 1)"}});
}

Error bad(const std::string& text) {
  return {Errc::kInvalidInput, text};
}

Result<ElasticBenchOptions> options_of(const cli::ParsedArguments& arguments,
                                       const std::vector<std::string>& faults) {
  ElasticBenchOptions options;
  options.job = endless_job();
  TRY(read_settings(arguments, options.job));
  TRY(engine::validate(options.job));
  options.json = arguments.has("json");
  options.own_core = arguments.has("own-core");
  options.trace = arguments.option("trace");
  options.fault = arguments.option("fault", options.fault);
  TRY(cli::read_number(arguments, "kills", options.events));
  TRY(cli::read_number(arguments, "events", options.events));
  TRY(cli::read_number(arguments, "minutes", options.minutes));
  TRY(cli::read_number(arguments, "hang-step", options.hang_step));
  TRY(cli::read_number(arguments, "oversubscribe", options.oversubscribe));
  TRY(cli::read_number(arguments, "speedup", options.speedup));
  TRY(cli::read_number(arguments, "nodes-max", options.nodes_max));
  TRY(cli::read_number(arguments, "kill-every", options.kill_every));
  if (std::find(faults.begin(), faults.end(), options.fault) == faults.end()) {
    return bad(fmt::format("--fault {}: not one of {}", options.fault, fmt::join(faults, ", ")));
  }
  return options;
}

Result<void> check(const std::string& name, const ElasticBenchOptions& options) {
  // No worker leaves in a join, so one worker is enough to measure it.
  if (options.job.workers < 2 && name != "join") {
    return bad("--workers 1: at least 2 are needed, one must go on");
  }
  if (options.hang_step < 2) {
    return bad(fmt::format("--hang-step {}: steps from 2 on can be timed", options.hang_step));
  }
  if (name == "goodput" && options.trace.empty() == (options.kill_every <= 0)) {
    return bad("bench goodput needs --trace FILE or --kill-every SECONDS");
  }
  return {};
}

BenchCommand elastic_command(const std::string& name, const cli::CommandSpec& spec,
                             const std::vector<std::string>& faults) {
  return make_command(spec,
                      [name, faults](const cli::ParsedArguments& arguments, BenchContext& context) {
                        const Result<ElasticBenchOptions> options = options_of(arguments, faults);
                        if (!options.ok()) {
                          return context.complain(options.error());
                        }
                        const Result<void> checked = check(name, options.value());
                        return checked.ok() ? context.benches.elastic(name, options.value())
                                            : context.complain(checked.error());
                      });
}

}  // namespace

std::vector<BenchCommand> elastic_commands() {
  return {elastic_command("recovery", recovery_spec(), {"kill", "stop", "vanish"}),
          elastic_command("join", join_spec(), {"kill"}),
          elastic_command("drain", drain_spec(), {"kill"}),
          elastic_command("detect", detect_spec(), {"kill", "stop", "hang"}),
          elastic_command("goodput", goodput_spec(), {"kill"})};
}

}  // namespace mayfly::bench
