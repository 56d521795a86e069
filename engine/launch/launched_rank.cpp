// `mayfly train` under mpirun, mpiexec or srun, which only start the processes. Rank 0 starts a
// coordinator process beside itself, under a keeper that starts it again if it is killed; every
// rank (0 included) becomes a worker of the elastic job. No worker is special: the coordinator
// outlives the worker that started it. Rank 0 sends the coordinator's address to the other ranks
// over the launcher's own connections if Mayfly supports them, otherwise through the run directory,
// which all ranks must then share.

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "base/net/addresses.hpp"
#include "base/net/sockets.hpp"
#include "base/parse.hpp"
#include "base/process/ancestors.hpp"
#include "base/process/spawn.hpp"
#include "base/system_error.hpp"
#include "base/usable_cores.hpp"
#include "elastic/net/job_token.hpp"
#include "elastic/net/sentinel.hpp"
#include "engine/config/bind_host.hpp"
#include "engine/config/derived_settings.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/launch/coordinator_main.hpp"
#include "engine/launch/launch.hpp"
#include "engine/launch/launched_by.hpp"
#include "engine/launch/program_command.hpp"
#include "engine/launch/rank_channel.hpp"
#include "engine/launch/rank_marks.hpp"
#include "engine/membership/exit_codes.hpp"
#include "engine/membership/run_place.hpp"
#include "engine/membership/signal_watcher.hpp"
#include "engine/network/prepare_job.hpp"
#include "engine/processes/coordinator_process.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/run/run_directory.hpp"
#include "engine/training/backend.hpp"

namespace mayfly::engine {
namespace {

constexpr Duration kTrialTimeout = seconds(1);
constexpr std::size_t kEndpointBytesMax = 512;

const char* variable(const char* name) {
  return std::getenv(name);
}

/// Whether the job has no steps left; checked by the rank itself, since there may be no
/// coordinator.
bool has_nothing_left(const JobConfig& config) {
  if (config.resume.empty()) {
    return false;
  }
  const Result<LoadedCheckpoint> loaded = load_intact_checkpoint(config.resume);
  const Result<std::unique_ptr<Job>> job = prepare_job(config);
  return loaded.ok() && job.ok() &&
         is_nothing_left(*job.value(), value(loaded.value().info.committed));
}

int exit_code_of(const ProcessEnd& end) {
  return end.signal != 0 ? kExitFailed : end.exit_code;
}

/// The exit code of a child, if it has ended.
std::optional<int> exit_code_of_ended(pid_t child) {
  const std::optional<ProcessEnd> end =
      child > 0 ? end_if_over(child) : std::optional<ProcessEnd>();
  return end ? std::optional(exit_code_of(*end)) : std::nullopt;
}

/// The coordinator's address, or the exit code of this rank if its job has ended already.
struct Meeting {
  std::optional<int> over;
  std::string endpoint;
  std::string run_dir;
  std::string token{};  ///< in hexadecimal digits; empty = in the token file
};

/// Empty if there is no such file.
std::string endpoint_in(const std::string& file) {
  const Result<std::string> text = read_text_file(file, kEndpointBytesMax);
  return text.ok() ? text.value().substr(0, text.value().find('\n')) : std::string();
}

bool is_answered(const std::string& endpoint) {
  const Result<Endpoint> place = parse_endpoint(endpoint);
  return place.ok() && connect_tcp(place.value(), monotonic_now() + kTrialTimeout).ok();
}

Duration coordinator_timeout(const JobConfig& config) {
  return Duration(static_cast<std::int64_t>(config.coordinator_timeout * 1e9));
}

/// Waits for the endpoint that the coordinator writes. `coordinator` is its process id, or 0 on
/// ranks that do not start it. Rank 0, which does, waits until the coordinator has loaded the job.
Result<Meeting> wait_for_endpoint(const JobConfig& config, pid_t coordinator) {
  const std::string place = config.run_dir + "/coordinator";
  const Instant deadline =
      coordinator > 0 ? Instant{INT64_MAX} : monotonic_now() + coordinator_timeout(config);
  Instant next_word = monotonic_now() + seconds(5);
  const std::string found = endpoint_in(place);  // perhaps of a coordinator that was killed
  while (monotonic_now() < deadline) {
    if (const std::optional<int> code = exit_code_of_ended(coordinator)) {
      return Meeting{code, "", config.run_dir};
    }
    const std::string endpoint = endpoint_in(place);
    if (!endpoint.empty() && (endpoint != found || is_answered(endpoint))) {
      return Meeting{std::nullopt, endpoint, config.run_dir};
    }
    if (monotonic_now() >= next_word) {
      next_word = next_word + seconds(10);
      log::warning(fmt::format(
          "waiting for {}, which the coordinator beside rank 0 writes once it has loaded the job{}",
          place,
          coordinator > 0
              ? std::string()
              : fmt::format("; retrying for {} s", (deadline - monotonic_now()) / seconds(1))));
    }
    std::this_thread::sleep_for(milliseconds(20));
  }
  return Error{
      Errc::kDeadline,
      fmt::format("{}: no coordinator has begun there within {} s "
                  "(--coordinator-timeout); see the output of rank 0: the job takes longer to load "
                  "or has failed, or this file system is not shared with it",
                  place, config.coordinator_timeout)};
}

// --- the text that rank 0 publishes over a launcher's channel

std::string to_text(const Meeting& meeting) {
  return fmt::format("{}\n{}\n{}\n{}", meeting.over.value_or(-1), meeting.endpoint, meeting.token,
                     meeting.run_dir);
}

Result<Meeting> meeting_in(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t at = 0;
  for (int line = 0; line < 3 && at != std::string::npos; ++line) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end == std::string::npos ? end : end + 1;
  }
  if (at == std::string::npos) {
    return Error{Errc::kCorrupt, "rank 0 sent something other than the coordinator's address"};
  }
  const int code = std::atoi(lines[0].c_str());
  return Meeting{code < 0 ? std::nullopt : std::optional(code), lines[1], text.substr(at),
                 lines[2]};
}

/// A file in memory that only this process can open, and that disappears with it.
Result<UniqueFd> keep_in_memory(const std::string& text) {
  UniqueFd fd(::memfd_create("mayfly-token", MFD_CLOEXEC));
  if (!fd.valid() || ::fchmod(fd.get(), 0600) != 0 ||
      ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return system_error("cannot keep the job's token", errno);
  }
  return fd;
}

/// Restarts a coordinator that is killed; the new one continues from the log. This process, the
/// keeper, has no threads and hardly any memory, and leaves signals to the coordinator. It holds
/// the run directory's lock while there is no coordinator.
int keep_coordinator(const JobConfig& config, RunListener& listener, LockFile lock) {
  constexpr int kRestartsMax = 10;
  for (int restarts = 0;; ++restarts) {
    const pid_t coordinator = ::fork();
    if (coordinator == 0) {
      return run_coordinator(config, listener,
                             restarts == 0 ? CoordinatorProcess::Unfinished::kRefuse
                                           : CoordinatorProcess::Unfinished::kContinue,
                             CoordinatorProcess::Facts::kHere, std::move(lock));
    }
    for (const int ignored : {SIGINT, SIGTERM, kWarningSignal}) {
      ::signal(ignored, SIG_IGN);
    }
    const auto hangup = ::signal(SIGHUP, SIG_IGN);  // it may be ignored already, as by nohup
    if (coordinator < 0) {
      return kExitFailed;
    }
    const ProcessEnd end = wait_for_end(coordinator);
    if (end.signal == 0 || restarts == kRestartsMax) {
      return exit_code_of(end);
    }
    listener.on_event(
        fmt::format("the coordinator was ended by signal {}; starting it again", end.signal));
    for (const int restored : {SIGINT, SIGTERM, kWarningSignal}) {
      ::signal(restored, SIG_DFL);
    }
    ::signal(SIGHUP, hangup);
  }
}

/// A spare can replace a lost rank only if mpirun does not end all other ranks after the loss.
Result<void> check_recovery(const JobConfig& config, const LaunchedBy& self) {
  const char* setting = variable("OMPI_MCA_orte_enable_recovery");
  const std::string_view recovery = setting == nullptr ? "" : setting;
  const bool recovers = recovery == "1" || recovery == "true";  // as --mca may spell it
  if (config.spares > 0 && self.launcher == Launcher::kOpenMpi && !recovers) {
    return Error{Errc::kInvalidInput,
                 "spares have no effect without mpirun --enable-recovery: the loss of one rank "
                 "ends all others"};
  }
  return {};
}

JobConfig config_of(const LaunchedBy& self, const JobConfig& requested) {
  JobConfig config = requested;
  config.workers = self.size;
  config.worker_number = self.rank;
  if (config.run_dir.empty() && !self.job.empty()) {
    config.run_dir = fmt::format("runs/{}-{}", config.model, self.job);
  }
  if (config.threads == 0) {
    const std::uint32_t all = cores_of_all();
    config.threads =
        uses_cuda(config.device) ? 1 : share_of_cores(all, usable_cores(), self.local_size);
  }
  return config;
}

/// Tells the user on which host the model is stored, because the launcher chooses the host of rank
/// 0.
class HostNamer final : public RunListener {
 public:
  explicit HostNamer(RunListener& listener) : listener_(listener) {}

  [[nodiscard]] Result<void> on_begun(const JobConfig& config) override {
    return listener_.on_begun(config);
  }
  void on_step(const StepRecord& step, std::uint64_t total_steps) override {
    listener_.on_step(step, total_steps);
  }
  void on_event(const std::string& line) override { listener_.on_event(line); }
  void on_summary(const Summary& summary) override {
    Summary named = summary;
    std::error_code failure;
    const auto path = std::filesystem::absolute(named.last_checkpoint, failure);
    if (!named.last_checkpoint.empty() && !failure) {
      named.last_checkpoint = host_name() + ":" + path.string();
    }
    listener_.on_summary(named);
  }
  void on_nothing_left(const std::string& line) override { listener_.on_nothing_left(line); }

 private:
  RunListener& listener_;
};

/// The work of one rank: it learns the coordinator's address and joins the job as a worker.
class LaunchedRank {
 public:
  /// `command`: a program of the user's own; empty = this process is the worker.
  LaunchedRank(LaunchedBy self, const JobConfig& requested, RunListener& listener,
               std::unique_ptr<elastic::Sentinel> sentinel, std::vector<std::string> command)
      : self_(std::move(self)),
        config_(config_of(self_, requested)),
        listener_(listener),
        sentinel_(std::move(sentinel)),
        command_(std::move(command)) {}

  int run();

 private:
  [[nodiscard]] Result<void> check();
  [[nodiscard]] std::unique_ptr<RankChannel> open_channel() const;
  /// On rank 0: starts the coordinator. Returns an exit code if that is impossible.
  std::optional<int> start_coordinator();
  std::optional<int> refuse_used_directory(LockFile& lock) const;
  void end_coordinator();
  Result<Meeting> meet_as_first();
  Result<Meeting> meet_as_other();
  int join(const Meeting& meeting);
  [[nodiscard]] int run_program() const;
  [[nodiscard]] int wait_for_coordinator() const;

  LaunchedBy self_;
  JobConfig config_;
  RunListener& listener_;
  std::unique_ptr<elastic::Sentinel> sentinel_;
  std::vector<std::string> command_;
  std::unique_ptr<RankChannel> channel_;  // null = the run directory is shared
  bool has_own_token_ = false;            // the user named the file
  pid_t coordinator_ = 0;
};

/// Checks the program, and the settings that depend on the number of workers.
Result<void> LaunchedRank::check() {
  TRY(check_program(command_));
  TRY(spell_out_switch_order(config_));
  TRY(check_spares(config_));
  TRY(check_servers(config_));
  TRY(check_backups(config_));
  TRY(check_recovery(config_, self_));
  TRY(check_backend(config_));
  return check_reachable_host(config_.bind_host);
}

/// With backend mpi only the MPI library may use the launcher's connection.
std::unique_ptr<RankChannel> LaunchedRank::open_channel() const {
  const bool needs_one = !self_.is_on_one_host() || config_.run_dir.empty();
  return needs_one && config_.backend != "mpi" ? open_rank_channel(variable) : nullptr;
}

std::optional<int> LaunchedRank::refuse_used_directory(LockFile& lock) const {
  if (!std::filesystem::exists(config_.run_dir + "/events.jsonl") || !config_.resume.empty()) {
    return std::nullopt;
  }
  std::move(lock).discard();
  return refuse({Errc::kInvalidInput,
                 fmt::format("{} already holds a run; choose another --run-dir", config_.run_dir)},
                kExitUsage);
}

std::optional<int> LaunchedRank::start_coordinator() {
  Result<LockFile> lock = lock_run_directory(config_);
  if (!lock.ok()) {
    return refuse(lock.error(), kExitUsage);
  }
  if (const std::optional<int> code = refuse_used_directory(lock.value())) {
    return code;
  }
  if (channel_ == nullptr && !self_.is_on_one_host()) {
    if (Result<void> seen = wait_for_marks(config_.run_dir, self_); !seen.ok()) {
      std::move(lock).value().discard();
      return refuse(seen.error(), kExitUsage);
    }
  }
  coordinator_ = ::fork();
  if (coordinator_ < 0) {
    const int failure = errno;
    std::move(lock).value().discard();
    return refuse(system_error("cannot start a coordinator", failure), kExitFailed);
  }
  if (coordinator_ == 0) {
    sentinel_.release();  // the parent's; its destructor would report the end of the parent
    JobConfig own = config_;
    if (own.bind_host == kAutoHost && self_.is_on_one_host()) {
      own.bind_host = kLoopbackHost;
    }
    HostNamer namer(listener_);
    ::_exit(
        keep_coordinator(own, self_.is_on_one_host() ? listener_ : namer, std::move(lock).value()));
  }
  return std::nullopt;
}

/// To be called if rank 0 cannot continue. The coordinator's keeper ignores signals, so this
/// function reads the coordinator's process id from the lock of the run directory.
void LaunchedRank::end_coordinator() {
  const Result<std::string> holder =
      read_text_file(view_log_path(config_.run_dir) + ".lock", kEndpointBytesMax);
  const std::optional<int> pid =
      holder.ok() ? number_in<int>(holder.value()) : std::optional<int>();
  if (pid && !ancestors_up_to(coordinator_, *pid).empty()) {
    ::kill(*pid, SIGTERM);
    wait_for_end(coordinator_);
  }
}

Result<Meeting> LaunchedRank::meet_as_first() {
  Meeting meeting{start_coordinator(), "", config_.run_dir};
  std::optional<Error> failure;
  if (!meeting.over) {
    const Result<Meeting> found = wait_for_endpoint(config_, coordinator_);
    failure = found.ok() ? std::nullopt : std::optional(found.error());
    meeting = found.ok() ? found.value() : Meeting{kExitFailed, "", config_.run_dir};
  }
  if (!meeting.over && channel_ != nullptr && !has_own_token_) {
    const Result<Bytes> token = elastic::read_token_file(config_.run_dir + "/token");
    failure = token.ok() ? std::nullopt : std::optional(token.error());
    meeting.token = token.ok() ? elastic::token_to_text(token.value()) : "";
  }
  if (channel_ != nullptr) {  // the other ranks wait for the text, even after a failure
    const Result<void> said = channel_->publish(to_text(meeting));
    failure = failure || said.ok() ? failure : std::optional(said.error());
  }
  if (failure) {
    end_coordinator();
  }
  return failure ? Result<Meeting>(*failure) : Result<Meeting>(std::move(meeting));
}

Result<Meeting> LaunchedRank::meet_as_other() {
  if (channel_ != nullptr) {
    const Result<std::string> text =
        channel_->receive(monotonic_now() + coordinator_timeout(config_));
    return text.ok() ? meeting_in(text.value()) : Result<Meeting>(text.error());
  }
  if (!self_.is_on_one_host()) {  // first: the next steps may take longer than rank 0 waits
    TRY(leave_mark(config_.run_dir, self_));
  }
  if (has_nothing_left(config_)) {
    return Meeting{kExitDone, "", config_.run_dir};
  }
  return wait_for_endpoint(config_, 0);
}

int LaunchedRank::join(const Meeting& meeting) {
  config_.run_dir = meeting.run_dir;
  config_.coordinator = meeting.endpoint;
  UniqueFd token;  // open as long as this process is a worker
  if (!has_own_token_) {
    config_.token_file = config_.run_dir + "/token";
  }
  if (!has_own_token_ && !meeting.token.empty() && self_.rank != 0) {
    Result<UniqueFd> kept = keep_in_memory(meeting.token + "\n");
    if (!kept.ok()) {
      return refuse(kept.error(), kExitFailed);
    }
    token = std::move(kept).value();
    config_.token_file = fmt::format("/proc/{}/fd/{}", ::getpid(), token.get());
  }
  const int code = command_.empty() ? run_worker(config_, std::move(sentinel_)) : run_program();
  const int end = wait_for_coordinator();
  return code != kExitDone ? code : end;
}

int LaunchedRank::run_program() const {
  return run_command(command_at({.coordinator = config_.coordinator,
                                 .number = self_.rank,
                                 .job_file = {},
                                 .run_dir = config_.run_dir,
                                 .token_file = config_.token_file,
                                 .bind_host = config_.bind_host,
                                 .slot = self_.local_rank},
                                command_));
}

/// srun ends processes that a task leaves behind, and the coordinator still has to write the
/// summary. It may run for long if only this rank's worker has left the job.
int LaunchedRank::wait_for_coordinator() const {
  return coordinator_ > 0 ? exit_code_of(wait_for_end(coordinator_)) : kExitDone;
}

int LaunchedRank::run() {
  if (Result<void> checked = check(); !checked.ok()) {
    return refuse(checked.error(), kExitUsage);
  }
  has_own_token_ = !config_.token_file.empty();
  channel_ = open_channel();
  if (config_.run_dir.empty() && channel_ == nullptr) {
    return refuse({Errc::kInvalidInput,
                   fmt::format("{} gives its ranks no common name for the job; name a --run-dir on "
                               "a file system that all of them share",
                               name_of(self_.launcher))},
                  kExitUsage);
  }
  const Result<Meeting> meeting = self_.rank == 0 ? meet_as_first() : meet_as_other();
  channel_.reset();
  if (!meeting.ok()) {
    const bool mendable = meeting.error().code == Errc::kInvalidInput;
    return refuse(meeting.error(), mendable ? kExitUsage : kExitFailed);
  }
  return meeting.value().over ? *meeting.value().over : join(meeting.value());
}

}  // namespace

bool inside_launcher() {
  const Result<std::optional<LaunchedBy>> found = launched_by(variable);
  return !found.ok() || found.value().has_value();
}

int run_launched_rank(const JobConfig& requested, RunListener& listener,
                      std::unique_ptr<elastic::Sentinel> sentinel,
                      const std::vector<std::string>& command) {
  const Result<std::optional<LaunchedBy>> found = launched_by(variable);
  if (!found.ok()) {
    return refuse(found.error(), kExitUsage);
  }
  ENSURE(found.value().has_value(), "asked only where a launcher has started this process");
  const LaunchedBy& self = *found.value();
  if (self.rank == 0 && requested.workers > 1 && requested.workers != self.size) {
    log::warning(
        fmt::format("{} has started {} processes, each of them a worker; --workers {} has "
                    "no effect",
                    name_of(self.launcher), self.size, requested.workers));
  }
  return LaunchedRank(*found.value(), requested, listener, std::move(sentinel), command).run();
}

}  // namespace mayfly::engine
