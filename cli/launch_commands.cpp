#include <filesystem>

#include "base/file.hpp"
#include "cli/commands.hpp"
#include "cli/configuration.hpp"
#include "cli/operator_link.hpp"
#include "cli/progress_line.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/run/unfinished_run.hpp"

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

ProgressLine make_listener(const engine::JobConfig& config, Context& context) {
  return ProgressLine(context.out, context.err, {context.err_is_terminal, config.quiet},
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
  ProgressLine listener = make_listener(config.value(), context);
  return context.services.coordinator(config.value(), listener);
}

int train_as_launched_rank(const engine::JobConfig& config, Context& context) {
  Result<std::unique_ptr<elastic::Sentinel>> sentinel = sentinel_of(context);
  if (!sentinel.ok()) {
    return context.complain(sentinel.error());
  }
  ProgressLine listener = make_listener(config, context);
  return context.services.launched_rank(config, listener, std::move(sentinel).value());
}

}  // namespace

namespace {

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
  ProgressLine listener = make_listener(config.value(), context);
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
  ProgressLine listener = make_listener(config.value(), context);
  return context.services.coordinator(config.value(), listener);
}

}  // namespace mayfly::cli
