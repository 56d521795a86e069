// Commands that start processes of jobs: `mayfly train`, `worker`, `ps-server`, `coordinator`;
// `compare` and `tune-switch`, which run many jobs; `token` and `bundle`, which prepare them.

#include <filesystem>

#include "base/file.hpp"
#include "cli/arguments.hpp"
#include "cli/cli.hpp"
#include "cli/job_listener.hpp"
#include "cli/operator_commands.hpp"
#include "cloud_hooks/bundle/program_bundle.hpp"
#include "elastic/net/job_token.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/run/run_directory.hpp"

namespace mayfly::cli {
namespace {

/// Settings that were not given are those of the job in the run directory, if that has not ended.
Result<engine::JobConfig> resolve_coordinator_config(const ParsedArguments& arguments,
                                                     const Context& context) {
  Result<engine::JobConfig> config = resolve_config(arguments, context);
  if (!config.ok() || !engine::holds_unfinished_job(config.value().run_dir)) {
    return config;
  }
  Result<engine::JobConfig> recorded = engine::config_of_run(config.value().run_dir);
  // A file that is missing may be about to be written: another process starts in this directory,
  // and the directory's lock will refuse one of the two.
  if (!recorded.ok()) {
    return recorded.error().code == Errc::kNotFound ? config : recorded;
  }
  return resolve_config(arguments, context, std::move(recorded).value());
}

/// main() has forked the sentinel if the command line is that of a worker. A coordinator that is
/// named in the environment or a file is known only now, still before threads and large memory.
Result<std::unique_ptr<elastic::Sentinel>> sentinel_of(Context& context) {
  if (context.sentinel != nullptr) {
    return std::move(context.sentinel);
  }
  return context.services.fork_sentinel();
}

int join(const engine::JobConfig& config, Context& context) {
  Result<std::unique_ptr<elastic::Sentinel>> sentinel = sentinel_of(context);
  if (!sentinel.ok()) {
    return context.complain(sentinel.error());
  }
  return context.services.worker(config, std::move(sentinel).value());
}

JobListener make_listener(const engine::JobConfig& config, Context& context) {
  return JobListener(context.out, context.err, {context.err_is_terminal, config.quiet},
                     monotonic_now);
}

/// Runs the coordinator in this process, with workers that a provider or ssh starts elsewhere.
int train_on_hosts(const ParsedArguments& arguments, Context& context) {
  Result<engine::JobConfig> config = resolve_coordinator_config(arguments, context);
  if (!config.ok()) {
    return context.complain(config.error());
  }
  if (!config.value().cloud_provider.empty() && config.value().cloud_provider != "ssh") {
    return context.complain("--hosts needs no --cloud-provider", kExitUsage);
  }
  if (!config.value().chaos.empty()) {
    return context.complain("--chaos is for local workers, not for --hosts", kExitUsage);
  }
  config.value().cloud_provider = "ssh";
  JobListener listener = make_listener(config.value(), context);
  return context.services.coordinator(config.value(), listener);
}

int train_as_launched_rank(const engine::JobConfig& config, Context& context) {
  Result<std::unique_ptr<elastic::Sentinel>> sentinel = sentinel_of(context);
  if (!sentinel.ok()) {
    return context.complain(sentinel.error());
  }
  JobListener listener = make_listener(config, context);
  return context.services.launched_rank(config, listener, std::move(sentinel).value());
}

/// A process that joins a running job takes every setting that its command line leaves open from
/// the coordinator. Workers that a launcher starts were given all settings, except one: which of
/// the machines of a cloud provider is an evaluator, or is or carries which parameter server, is
/// for the coordinator to decide.
int join_as(const char* what, bool is_server, const ParsedArguments& arguments, Context& context) {
  Result<engine::JobConfig> own = collect_settings(arguments, context);
  if (!own.ok()) {
    return context.complain(own.error());
  }
  std::string coordinator = own.value().coordinator;
  if (coordinator.empty() && !own.value().run_dir.empty()) {
    Result<std::string> endpoint = endpoint_of_run(own.value().run_dir);
    if (!endpoint.ok()) {
      return context.complain(endpoint.error());
    }
    coordinator = std::move(endpoint).value();
  }
  if (coordinator.empty()) {
    return context.complain(std::string(what) + " needs --coordinator HOST:PORT[,HOST:PORT...]",
                            kExitUsage);
  }
  engine::JobConfig job;
  const bool needs_place =
      own.value().launched && !own.value().server.empty() &&
      (engine::uses_parameter_servers(own.value()) || own.value().evaluators > 0);
  if (!own.value().launched || needs_place) {
    own.value().coordinator = coordinator;
    Result<engine::JobConfig> told = context.services.ask_for_job_settings(own.value());
    if (!told.ok()) {
      const Errc code = told.error().code;
      return code == Errc::kRefused ? context.complain(told.error().detail, kExitUsage)
                                    : context.complain(told.error());
    }
    job = std::move(told).value();
  }
  is_server = is_server || job.ps_server;
  const std::uint32_t ps_index = job.ps_index;
  const std::uint32_t worker_number = job.worker_number;
  const bool is_evaluator = job.evaluator || own.value().evaluator;
  job.ps_server = is_server;
  job.coordinator = coordinator;
  Result<engine::JobConfig> config = resolve_config(arguments, context, std::move(job));
  if (!config.ok()) {
    return context.complain(config.error());
  }
  config.value().ps_server = is_server;  // whatever the job's file says of its other processes
  config.value().evaluator = is_evaluator;
  if (needs_place) {
    config.value().ps_index = ps_index;
    config.value().worker_number = worker_number;
  }
  config.value().coordinator = coordinator;
  return join(config.value(), context);
}

}  // namespace

int train(const ParsedArguments& arguments, Context& context) {
  const Result<engine::JobConfig> own = collect_settings(arguments, context);
  if (own.ok() && !own.value().coordinator.empty()) {
    return join_as("train", false, arguments, context);
  }
  if (own.ok() && !(own.value().hosts.empty() && own.value().hostfile.empty())) {
    return train_on_hosts(arguments, context);
  }
  const Result<engine::JobConfig> config = resolve_config(arguments, context);
  if (!config.ok()) {
    return context.complain(config.error());
  }
  if (engine::has_standbys(config.value())) {
    return context.complain(
        "quorum and standby are for `mayfly coordinator`; the workers of "
        "`mayfly train` know no other coordinator",
        kExitUsage);
  }
  if (!config.value().cloud_provider.empty()) {
    return context.complain(
        "cloud_provider is for `mayfly coordinator`; `mayfly train` starts its workers itself",
        kExitUsage);
  }
  if (context.services.inside_launcher()) {
    return train_as_launched_rank(config.value(), context);
  }
  JobListener listener = make_listener(config.value(), context);
  return context.services.train(config.value(), listener);
}

int worker(const ParsedArguments& arguments, Context& context) {
  return join_as("worker", false, arguments, context);
}

int ps_server(const ParsedArguments& arguments, Context& context) {
  return join_as("ps-server", true, arguments, context);
}

int coordinator(const ParsedArguments& arguments, Context& context) {
  const Result<engine::JobConfig> config = resolve_coordinator_config(arguments, context);
  if (!config.ok()) {
    return context.complain(config.error());
  }
  if (!config.value().coordinator.empty()) {
    return context.complain(
        "coordinator listens itself; use --bind-host and --port instead of "
        "--coordinator",
        kExitUsage);
  }
  JobListener listener = make_listener(config.value(), context);
  return context.services.coordinator(config.value(), listener);
}

int token(const ParsedArguments& arguments, Context& context) {
  const std::vector<std::string>& words = arguments.positionals;
  if (words.size() > 1) {
    return context.complain("token: unexpected argument '" + words[1] + "'", kExitUsage);
  }
  const Bytes made = elastic::make_token(arguments.has("tls"));
  if (words.empty()) {
    context.out << elastic::token_to_text(made) << "\n";
    return kExitDone;
  }
  std::error_code failure;
  if (std::filesystem::exists(std::filesystem::symlink_status(words[0], failure))) {
    return context.complain(words[0] +
                                " already exists, and may be the token of a running job; "
                                "choose another name or remove it",
                            kExitUsage);
  }
  const Result<void> written = elastic::write_token_file(words[0], made);
  return written.ok() ? kExitDone : context.complain(written.error());
}

int bundle(const ParsedArguments& arguments, Context& context) {
  if (arguments.positionals.size() != 1) {
    return context.complain("bundle expects the file to write, such as mayfly-worker.tar.gz",
                            kExitUsage);
  }
  const std::string& path = arguments.positionals.front();
  const auto nvidia = arguments.has("nvidia-libraries")
                          ? cloud_hooks::NvidiaLibraries::kPacked
                          : cloud_hooks::NvidiaLibraries::kOfTheServer;
  if (Result<void> packed = cloud_hooks::pack_own_program(path, nvidia); !packed.ok()) {
    return context.complain(packed.error());
  }
  const Result<cloud_hooks::BundleFile> file = cloud_hooks::open_bundle(path);
  if (!file.ok()) {
    return context.complain(file.error());
  }
  context.out << file.value().sha256 << "  " << path << "\n";
  return kExitDone;
}

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
