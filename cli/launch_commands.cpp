// Commands that start processes of jobs: `mayfly train`, `worker`, `ps-server`, `coordinator`;
// `compare` and `tune-switch`, which run many jobs; `token` and `bundle`, which prepare them.

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/check.hpp"
#include "base/text.hpp"
#include "cli/arguments.hpp"
#include "cli/cli.hpp"
#include "cli/job_listener.hpp"
#include "cli/operator_commands.hpp"
#include "cloud_hooks/bundle/program_bundle.hpp"
#include "elastic/net/job_token.hpp"
#include "engine/cloud/hosts.hpp"
#include "engine/compare/compare_plan.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/membership/run_place.hpp"
#include "engine/run/run_directory.hpp"

namespace mayfly::cli {
namespace {

/// If the run directory has a job that has not ended, its settings replace those that were not
/// given.
Result<engine::JobConfig> resolve_coordinator_config(const ParsedArguments& arguments,
                                                     const Context& context,
                                                     SwitchOrder order = SwitchOrder::kSpelledOut) {
  // Not validated yet: the given settings may be valid only together with the recorded ones.
  const Result<engine::JobConfig> given = collect_settings(arguments, context);
  engine::JobConfig start;
  if (given.ok() && engine::is_program(given.value())) {
    start.hang_max_ms = kProgramHangMaxMs;
  }
  if (!given.ok() || !engine::holds_unfinished_job(given.value().run_dir)) {
    return given.ok() ? resolve_config(arguments, context, std::move(start), order) : given;
  }
  Result<engine::JobConfig> recorded = engine::config_of_run(given.value().run_dir);
  // A file that is missing may be about to be written: another process starts in this directory,
  // and the directory's lock will refuse one of the two.
  if (!recorded.ok()) {
    return recorded.error().code == Errc::kNotFound
               ? resolve_config(arguments, context, std::move(start), order)
               : recorded;
  }
  return resolve_config(arguments, context, std::move(recorded).value(), order);
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

/// If workers are started in another way, scripted faults are not carried out, and a test of faults
/// would pass without any.
constexpr const char* kChaosIsLocal =
    "--chaos is for the workers that `mayfly train` and `mayfly run` start on this machine";

bool has_hosts(const engine::JobConfig& config) {
  return !(config.hosts.empty() && config.hostfile.empty());
}

/// Without a number of workers every slot of the hosts gets one; how many these are is known later.
void leave_number_to_hosts(const ParsedArguments& arguments, const Context& context,
                           engine::JobConfig& config) {
  if (config.cloud_provider == "ssh" && !config.cloud_dry_run &&
      !gives_workers(arguments, context)) {
    config.workers = engine::kEverySlot;
  }
}

/// Runs the coordinator in this process, with workers that a provider or ssh starts elsewhere.
int train_on_hosts(const ParsedArguments& arguments, Context& context) {
  Result<engine::JobConfig> config =
      resolve_coordinator_config(arguments, context, SwitchOrder::kKept);
  if (!config.ok()) {
    return context.complain(config.error());
  }
  if (!config.value().cloud_provider.empty() && config.value().cloud_provider != "ssh") {
    return context.complain("--hosts needs no --cloud-provider", kExitUsage);
  }
  if (!config.value().chaos.empty()) {
    return context.complain(kChaosIsLocal, kExitUsage);
  }
  config.value().cloud_provider = "ssh";
  if (!engine::holds_unfinished_job(config.value().run_dir)) {
    leave_number_to_hosts(arguments, context, config.value());
  }
  JobListener listener = make_listener(config.value(), context);
  return context.services.coordinator(config.value(), listener);
}

int train_as_launched_rank(const engine::JobConfig& config, Context& context) {
  if (!config.chaos.empty()) {
    return context.complain(kChaosIsLocal, kExitUsage);
  }
  Result<std::unique_ptr<elastic::Sentinel>> sentinel = sentinel_of(context);
  if (!sentinel.ok()) {
    return context.complain(sentinel.error());
  }
  JobListener listener = make_listener(config, context);
  return context.services.launched_rank(config, listener, std::move(sentinel).value(), {});
}

/// The address of the job that a process joins: from its setting, or from the job's run directory.
Result<std::string> coordinator_of(const char* what, const engine::JobConfig& own) {
  if (own.coordinator.empty() && !own.run_dir.empty()) {
    return endpoint_of_run(own.run_dir);
  }
  if (own.coordinator.empty()) {
    return Error{Errc::kInvalidInput,
                 std::string(what) + " needs --coordinator HOST:PORT[,HOST:PORT...]"};
  }
  return own.coordinator;
}

/// A process that joins a running job takes every setting that its command line leaves open from
/// the coordinator. Workers that a launcher starts have all settings except one: the coordinator
/// decides which machine of a cloud provider is an evaluator, or is or carries which parameter
/// server.
int join_as(const char* what, bool is_server, const ParsedArguments& arguments, Context& context) {
  Result<engine::JobConfig> own = collect_settings(arguments, context);
  if (!own.ok()) {
    return context.complain(own.error());
  }
  const Result<std::string> found = coordinator_of(what, own.value());
  if (!found.ok()) {
    return context.complain(found.error());
  }
  const std::string& coordinator = found.value();
  engine::JobConfig job;
  const bool needs_place =
      own.value().launched && !own.value().server.empty() &&
      (engine::uses_parameter_servers(own.value()) || own.value().evaluators > 0);
  if (!own.value().launched || needs_place) {
    own.value().coordinator = coordinator;
    Result<engine::JobConfig> settings = context.services.ask_for_job_settings(own.value());
    if (!settings.ok()) {
      const Errc code = settings.error().code;
      return code == Errc::kRefused ? context.complain(settings.error().detail, kExitUsage)
                                    : context.complain(settings.error());
    }
    job = std::move(settings).value();
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
  config.value().ps_server = is_server;  // the job's file may be that of its other processes
  config.value().evaluator = is_evaluator;
  if (needs_place) {
    config.value().ps_index = ps_index;
    config.value().worker_number = worker_number;
  }
  config.value().coordinator = coordinator;
  return join(config.value(), context);
}

}  // namespace

const std::set<std::string>& settings_of_networks() {
  static const std::set<std::string> names = {"data",         "data_from",       "image_size",
                                              "augment",      "skip_corrupt",    "loader_threads",
                                              "store",        "store_peers",     "prepared_store",
                                              "steps",        "epochs",          "lr",
                                              "lr_schedule",  "warmup_epochs",   "momentum",
                                              "weight_decay", "label_smoothing", "global_batch",
                                              "microbatch",   "dtype",           "conv_kernels"};
  return names;
}

const std::set<std::string>& settings_of_our_workers() {
  static const std::set<std::string> names = {"inject",       "isa",        "observe_from_mib",
                                              "resident_mib", "threads",    "reuse_images",
                                              "trace",        "trace_steps"};
  return names;
}

int train(const ParsedArguments& arguments, Context& context) {
  const Result<engine::JobConfig> own = collect_settings(arguments, context);
  if (own.ok() && !own.value().coordinator.empty()) {
    return join_as("train", false, arguments, context);
  }
  if (own.ok() && !(own.value().hosts.empty() && own.value().hostfile.empty())) {
    return train_on_hosts(arguments, context);
  }
  const bool is_launched = context.services.inside_launcher();
  const Result<engine::JobConfig> config = resolve_config(
      arguments, context, {}, is_launched ? SwitchOrder::kKept : SwitchOrder::kSpelledOut);
  if (!config.ok()) {
    return context.complain(config.error());
  }
  if (engine::has_standbys(config.value())) {
    return context.complain(
        "quorum and standby are for `mayfly coordinator`; the workers of `mayfly train` use no "
        "other coordinator",
        kExitUsage);
  }
  if (!config.value().cloud_provider.empty()) {
    return context.complain(
        "cloud_provider is for `mayfly coordinator`; `mayfly train` starts its workers itself",
        kExitUsage);
  }
  if (is_launched) {
    return train_as_launched_rank(config.value(), context);
  }
  JobListener listener = make_listener(config.value(), context);
  return context.services.train(config.value(), listener);
}

namespace {

/// Replaces this process by a program of the user's own.
int join_with_program(const ParsedArguments& arguments, Context& context) {
  Result<engine::JobConfig> own = collect_settings(arguments, context);
  if (!own.ok()) {
    return context.complain(own.error());
  }
  Result<std::string> coordinator = coordinator_of("worker", own.value());
  if (!coordinator.ok()) {
    return context.complain(coordinator.error());
  }
  own.value().coordinator = std::move(coordinator).value();
  return context.services.become_program(own.value(), arguments.settings,
                                         arguments.option("config"), arguments.positionals);
}

/// The program of the command, or its script, if a copy of the folder would lack it: servers would
/// start, fail and be billed again and again. Empty = nothing is missing.
std::string missing_from(const std::filesystem::path& folder,
                         const std::vector<std::string>& command) {
  std::error_code absent;
  if (!std::filesystem::is_directory(folder, absent)) {
    return "";  // packing will report it
  }
  for (std::size_t at = 0; at < std::min<std::size_t>(command.size(), 2); ++at) {
    const std::filesystem::path path = std::filesystem::path(command[at]).lexically_normal();
    const bool is_file = at == 0 ? command[at].find('/') != std::string::npos
                                 : path.extension() == ".py" || path.extension() == ".sh";
    if (is_file && path.is_relative() &&
        (path.begin()->string() == ".." || !std::filesystem::exists(folder / path, absent))) {
      return command[at];
    }
  }
  return "";
}

/// Runs the coordinator in this process; servers get a bundle with the user's folder.
int run_program_on_servers(engine::JobConfig config, const ParsedArguments& arguments,
                           Context& context) {
  const bool on_hosts = has_hosts(config);
  if (on_hosts && !config.cloud_provider.empty() && config.cloud_provider != "ssh") {
    return context.complain("--hosts needs no --cloud-provider", kExitUsage);
  }
  if (!config.chaos.empty()) {
    return context.complain(kChaosIsLocal, kExitUsage);
  }
  config.cloud_provider = on_hosts ? "ssh" : config.cloud_provider;
  config.cloud_program = shell_line(arguments.positionals);
  leave_number_to_hosts(arguments, context, config);
  const bool sees_our_files = config.cloud_provider == "local" || config.cloud_provider == "exec";
  if (config.cloud_bundle.empty() && config.remote_program.empty() && !sees_our_files) {
    engine::JobConfig resolved = config;
    engine::resolve_defaults(resolved);
    const std::string folder = arguments.option("program-dir", ".");
    if (const std::string missing = missing_from(folder, arguments.positionals); !missing.empty()) {
      return context.complain(
          missing + " is not in the folder that the servers get (--program-dir " + folder + ")",
          kExitUsage);
    }
    Result<std::string> packed = cloud_hooks::packed_own_program(resolved.cache_dir, folder);
    if (!packed.ok()) {
      return context.complain(packed.error());
    }
    config.cloud_bundle = std::move(packed).value();
  }
  JobListener listener = make_listener(config, context);
  return context.services.coordinator(config, listener);
}

Result<void> check_settings(const ParsedArguments& arguments) {
  for (const auto& [name, value] : arguments.settings) {
    if (settings_of_networks().contains(name)) {
      return Error{Errc::kInvalidInput,
                   engine::flag_name(*engine::find_setting(name)).insert(0, "--") +
                       " applies to the networks of mayfly; a program decides that itself"};
    }
    if (settings_of_our_workers().contains(name)) {
      return Error{Errc::kInvalidInput,
                   engine::flag_name(*engine::find_setting(name)).insert(0, "--") +
                       " applies to the workers of mayfly, and has no effect on a program"};
    }
  }
  return {};
}

bool has_servers(const engine::JobConfig& config) {
  return has_hosts(config) || !config.cloud_provider.empty();
}

}  // namespace

int run_program(const ParsedArguments& arguments, Context& context) {
  if (arguments.positionals.empty()) {
    return context.complain("run expects a program: mayfly run --workers 4 -- python3 train.py",
                            kExitUsage);
  }
  if (Result<void> checked = check_settings(arguments); !checked.ok()) {
    return context.complain(checked.error());
  }
  engine::JobConfig start;
  start.model = engine::kProgramModel;
  start.hang_max_ms = kProgramHangMaxMs;
  start.cloud_program = shell_line(arguments.positionals);
  Result<engine::JobConfig> config = resolve_config(arguments, context, std::move(start));
  if (!config.ok()) {
    return context.complain(config.error());
  }
  if (!engine::is_program(config.value())) {
    return context.complain("--model names a network of mayfly; a program has its own network",
                            kExitUsage);
  }
  if (!config.value().coordinator.empty()) {
    return context.complain(
        "run starts a new job; to join a running one, use `mayfly worker --coordinator "
        "HOST:PORT "
        "--token-file FILE -- PROGRAM`",
        kExitUsage);
  }
  if (has_servers(config.value())) {
    return run_program_on_servers(std::move(config).value(), arguments, context);
  }
  JobListener listener = make_listener(config.value(), context);
  if (context.services.inside_launcher()) {
    if (!config.value().chaos.empty()) {
      return context.complain(kChaosIsLocal, kExitUsage);
    }
    return context.services.launched_rank(config.value(), listener, nullptr, arguments.positionals);
  }
  return context.services.program(config.value(), arguments.positionals, listener);
}

int worker(const ParsedArguments& arguments, Context& context) {
  if (!arguments.positionals.empty()) {
    return join_with_program(arguments, context);
  }
  return join_as("worker", false, arguments, context);
}

int ps_server(const ParsedArguments& arguments, Context& context) {
  return join_as("ps-server", true, arguments, context);
}

int coordinator(const ParsedArguments& arguments, Context& context) {
  // Only given settings count: those that are recorded for a continued job may have scripted
  // faults.
  const Result<engine::JobConfig> given = collect_settings(arguments, context);
  if (given.ok() && !given.value().chaos.empty()) {
    return context.complain(kChaosIsLocal, kExitUsage);
  }
  Result<engine::JobConfig> config = resolve_coordinator_config(arguments, context);
  if (!config.ok()) {
    return context.complain(config.error());
  }
  if (has_hosts(config.value()) && config.value().cloud_provider != "ssh") {
    return context.complain(
        "coordinator uses --hosts and --hostfile only with --cloud-provider ssh; `mayfly train "
        "--hosts` needs no provider",
        kExitUsage);
  }
  if (!engine::holds_unfinished_job(config.value().run_dir)) {  // else it is recorded
    leave_number_to_hosts(arguments, context, config.value());
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
  const cloud_hooks::BundleContents contents{
      .nvidia = arguments.has("nvidia-libraries") ? cloud_hooks::NvidiaLibraries::kPacked
                                                  : cloud_hooks::NvidiaLibraries::kOfTheServer,
      .program_dir = arguments.option("program-dir")};
  if (Result<void> packed = cloud_hooks::pack_own_program(path, contents); !packed.ok()) {
    return context.complain(packed.error());
  }
  const Result<cloud_hooks::BundleFile> file = cloud_hooks::open_bundle(path);
  if (!file.ok()) {
    return context.complain(file.error());
  }
  context.out << file.value().sha256 << "  " << path << "\n";
  return kExitDone;
}

engine::JobConfig compared_defaults() {
  engine::JobConfig defaults;
  for (const auto& [name, text] : engine::compare_defaults(false)) {
    ENSURE(engine::apply_setting(defaults, name, text, "compare").ok(), "a setting's value");
  }
  return defaults;
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
  for (const Result<void>& read :
       {read_number(arguments, "seeds", options.seeds),
        read_number(arguments, "first-seed", options.first_seed),
        read_number(arguments, "spot-price", options.prices.spot),
        read_number(arguments, "on-demand-price", options.prices.on_demand)}) {
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
