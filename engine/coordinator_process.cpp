#include "engine/coordinator_process.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <thread>

#include "base/file.hpp"
#include "base/log.hpp"
#include "elastic/net/job_token.hpp"
#include "engine/backend.hpp"
#include "engine/checkpoint_store.hpp"
#include "engine/exit_codes.hpp"
#include "engine/network_interface.hpp"
#include "engine/reduction_layout.hpp"
#include "engine/starting_state.hpp"
#include "engine/trace.hpp"

namespace mayfly::engine {
namespace {

std::string fresh_run_dir(const std::string& model) {
  std::tm now{};
  const std::time_t seconds_now = std::time(nullptr);
  localtime_r(&seconds_now, &now);
  const std::string base = fmt::format("runs/{}-{:%Y%m%d-%H%M%S}", model, now);
  std::string path = base;
  for (int copy = 2; std::filesystem::exists(path); ++copy) {
    path = fmt::format("{}-{}", base, copy);
  }
  return path;
}

Result<Bytes> read_or_make_token(const std::string& path) {
  if (std::filesystem::exists(path)) {
    return elastic::read_token_file(path);
  }
  Bytes token = elastic::make_token();
  if (Result<void> written = elastic::write_token_file(path, token); !written.ok()) {
    return std::move(written).error();
  }
  return token;
}

int exit_code_of(elastic::Outcome outcome) {
  switch (outcome) {
    case elastic::Outcome::kDone: return kExitDone;
    case elastic::Outcome::kStopped: return kExitStopped;
    case elastic::Outcome::kFailed: return kExitFailed;
    case elastic::Outcome::kTooFewWorkers: return kExitTooFewWorkers;
  }
  UNREACHABLE("every outcome has an exit code");
}

/// Every worker would refuse wrong starting weights; says so before anything is started. Returns
/// what the user should know about them.
Result<std::string> try_starting_state(const Job& job) {
  const ReductionLayout layout(job.model);
  Result<StartingState> start = starting_state(job, layout);
  return start.ok() ? Result<std::string>(std::move(start).value().remark)
                    : Result<std::string>(start.error());
}

}  // namespace

void resolve_defaults(JobConfig& config) {
  if (config.run_dir.empty()) {
    config.run_dir = fresh_run_dir(config.model);
  }
  if (config.token_file.empty()) {
    config.token_file = config.run_dir + "/token";
  }
  if (config.cache_dir.empty()) {
    const std::filesystem::path parent = std::filesystem::path(config.run_dir).parent_path();
    config.cache_dir = (parent / ".cache").string();
  }
  if (config.threads == 0) {
    config.threads =
        std::max(1U, std::thread::hardware_concurrency() / std::max(1U, config.workers));
  }
}

Result<std::unique_ptr<CoordinatorProcess>> CoordinatorProcess::start(JobConfig config,
                                                                      RunListener& listener,
                                                                      ScaleHandler on_scale) {
  resolve_defaults(config);
  for (const Result<void>& checked : {check_spares(config), check_backend(config)}) {
    if (!checked.ok()) {
      return checked.error();
    }
  }
  if (!config.resume.empty()) {  // pin "latest" to the folder it means now
    Result<LoadedCheckpoint> loaded = load_checkpoint(config.resume);
    if (!loaded.ok()) {
      return std::move(loaded).error();
    }
    config.resume = loaded.value().path;
  }
  Result<std::unique_ptr<Job>> job = prepare_job(config);
  if (!job.ok()) {
    return std::move(job).error();
  }
  const Result<std::string> remark = try_starting_state(*job.value());
  if (!remark.ok()) {
    return remark.error();
  }
  std::unique_ptr<CoordinatorProcess> process(
      new CoordinatorProcess(listener, std::move(on_scale)));
  process->job_ = std::move(job).value();
  if (Result<void> opened = process->open_run_directory(); !opened.ok()) {
    return std::move(opened).error();
  }
  if (!remark.value().empty()) {
    process->note("init", remark.value());
  }
  if (Result<void> started = process->start_server(); !started.ok()) {
    return std::move(started).error();
  }
  return process;
}

Result<void> CoordinatorProcess::open_run_directory() {
  Result<std::unique_ptr<RunDirectory>> directory = RunDirectory::create(job_->config);
  if (!directory.ok()) {
    return std::move(directory).error();
  }
  directory_ = std::move(directory).value();
  if (!job_->config.trace.empty()) {  // of an earlier part of a resumed run
    std::error_code ignored;
    std::filesystem::remove_all(job_->config.run_dir + "/trace", ignored);
  }
  log::open("coordinator", job_->config.run_dir + "/logs/coordinator.log", log::Level::kWarning);
  recorder_ = std::make_unique<RunRecorder>(
      *job_, *directory_, listener_, RunHistory{},
      [this](const elastic::Command& command) { return answer(command); },
      [this](const std::string& reason) { server_->fail(reason); });
  return {};
}

Result<void> CoordinatorProcess::start_server() {
  const JobConfig& config = job_->config;
  Result<Bytes> token = read_or_make_token(config.token_file);
  if (!token.ok()) {
    return std::move(token).error();
  }
  Result<std::string> host = listening_host(config.bind_host);
  if (!host.ok()) {
    return host.error();
  }
  elastic::CoordinatorServerOptions options;
  options.host = std::move(host).value();
  options.port = config.port;
  options.token = std::move(token).value();
  options.core.microbatches = job_->microbatches;
  options.core.initial_workers = std::max(config.workers - config.spares, config.min_workers);
  if (config.spares > 0) {
    options.core.view_max = config.workers - config.spares;
  }
  options.core.min_workers = config.min_workers;
  options.core.min_workers_timeout =
      Duration(static_cast<std::int64_t>(config.min_workers_timeout * 1e9));
  options.core.silence_max = Duration(static_cast<std::int64_t>(config.silence_max_ms * 1e6));
  options.core.rebalance.enabled = config.rebalance;
  options.core.stragglers.factor = config.evict_stragglers;
  options.core.stragglers.after =
      Duration(static_cast<std::int64_t>(config.evict_stragglers_after * 1e9));
  options.core.observe_from_bytes = static_cast<std::uint64_t>(config.observe_from_mib * (1 << 20));
  options.core.seed = config.seed ^ static_cast<std::uint64_t>(wall_clock_seconds() * 1e6);
  options.core.fingerprint = job_->fingerprint;
  options.core.stalls.evict_floor = milliseconds(config.hang_max_ms);
  options.core.stalls.report_only = config.hang_max_ms == 0;
  if (!job_->bucket_size.tuned) {
    options.core.bucket_names =
        bucket_names(job_->model, ReductionLayout(job_->model, job_->bucket_size.elements));
  }
  Result<std::unique_ptr<elastic::CoordinatorServer>> server =
      elastic::start_coordinator(std::move(options), *recorder_);
  if (!server.ok()) {
    return std::move(server).error();
  }
  server_ = std::move(server).value();
  return write_file_atomic(config.run_dir + "/coordinator", server_->endpoint() + "\n");
}

void CoordinatorProcess::note(const std::string& kind, const std::string& detail) {
  recorder_->note(kind, detail);
}

elastic::CommandReply CoordinatorProcess::answer(const elastic::Command& command) {
  if (server_ == nullptr) {
    return {false, "the coordinator is still starting"};
  }
  if (command.verb == "status") {
    return {true, status_json()};
  }
  if (command.verb == "scale") {
    std::uint32_t count = 0;
    const char* end = command.argument.data() + command.argument.size();
    const auto parsed = std::from_chars(command.argument.data(), end, count);
    if (parsed.ec != std::errc() || parsed.ptr != end || count == 0) {
      return {false, fmt::format("'{}' is not a number of workers", command.argument)};
    }
    Result<std::string> scaled = on_scale_(count);
    return scaled.ok() ? elastic::CommandReply{true, scaled.value()}
                       : elastic::CommandReply{false, scaled.error().detail};
  }
  return {false, fmt::format("the coordinator knows no command '{}'", command.verb)};
}

std::string CoordinatorProcess::status_json() const {
  const elastic::JobStatus status = server_->status();
  std::string members;
  for (const elastic::MemberStatus& m : status.members) {
    members += fmt::format(
        R"({}{{"id":{},"host":{},"pid":{},"phase":{},"committed":{},"microbatch_ms":{},)"
        R"("microbatches":{}}})",
        members.empty() ? "" : ",", value(m.id), json_string(m.host), m.pid, json_string(m.phase),
        value(m.committed), m.microbatch_ms, m.microbatches);
  }
  return fmt::format(
      R"({{"phase":{},"committed":{},"total_steps":{},"view":{},"model":{},"run_dir":{},)"
      R"("members":[{}]}})",
      json_string(status.phase), value(status.committed), job_->total_steps, value(status.view),
      json_string(job_->config.model), json_string(job_->config.run_dir), members);
}

int CoordinatorProcess::finish(const JobEnd& end) {
  server_.reset();
  if (const JobConfig& config = job_->config; !config.trace.empty()) {
    const std::string file = config.trace == "auto" ? config.run_dir + "/trace.json" : config.trace;
    if (Result<void> merged = merge_traces(config.run_dir + "/trace", file); !merged.ok()) {
      log::warning("no trace: " + merged.error().detail);
    }
  }
  recorder_->write_summary(end);
  std::error_code ignored;
  std::filesystem::remove(job_->config.run_dir + "/coordinator", ignored);
  return exit_code_of(end.outcome);
}

}  // namespace mayfly::engine
