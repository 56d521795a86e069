#include "engine/launch/local_launcher.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <thread>

#include "base/log.hpp"
#include "base/net/addresses.hpp"
#include "base/process/ancestors.hpp"
#include "base/process/child_process.hpp"
#include "base/try_assign.hpp"
#include "engine/config/bind_host.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/config/setting_variables.hpp"
#include "engine/launch/last_reports.hpp"
#include "engine/launch/program_command.hpp"
#include "engine/membership/exit_codes.hpp"
#include "engine/membership/signal_watcher.hpp"
#include "engine/run/member_logs.hpp"

namespace mayfly::engine {
namespace {

// No recovery waits for a poll: the coordinator and the workers detect a loss by their connections.
// A poll decides how soon a dead worker is replaced and a request to scale is followed.
constexpr Duration kPollInterval = milliseconds(50);
constexpr Duration kPollIntervalOfFaults = milliseconds(5);  // which must happen in a certain step
constexpr Duration kProgramsExitTimeout = seconds(20);       // for a program after SIGTERM
constexpr Duration kLostEndsTimeout = seconds(2);            // a stopped process may never end
constexpr std::size_t kFlightLogsMax = 64;

std::string how_it_ended(const cloud_hooks::ServerStatus& status) {
  return status.signal != 0 ? fmt::format("killed by signal {}", status.signal)
                            : fmt::format("exit code {}", status.exit_code);
}

/// The name that a program started here has at the coordinator.
std::string program_name(std::size_t number) {
  return fmt::format("program {}", number);
}

/// The last log line of a worker that could not start, without the log's prefix.
std::string reason_in(const std::string& line) {
  for (const std::string_view before : {" worker error ", "mayfly: "}) {
    if (const std::size_t at = line.find(before); at != std::string::npos) {
      return line.substr(at + before.size());
    }
  }
  return line;
}

}  // namespace

LocalLauncher::LocalLauncher(const JobConfig& config, RunListener& listener,
                             std::vector<ChaosEvent> chaos, PollHook on_poll)
    : requested_(config),
      listener_(listener),
      plan_(std::move(chaos)),
      chaos_(*this, plan_),
      on_poll_(std::move(on_poll)),
      provider_({{}, {}, {}, setting_variables()}) {
  // A job of one machine must not listen where other machines, perhaps on the internet, reach it.
  if (requested_.bind_host == kAutoHost) {
    requested_.bind_host = kLoopbackHost;  // no worker of another host is expected
  }
}

/// The order matters: signals are caught before there is anything to save, and the address is tried
/// before the run directory is made, so that a refused command leaves nothing behind.
int LocalLauncher::run() {
  StopRequests requests;
  const SignalWatcher signals({SIGINT, SIGTERM, kWarningSignal}, [this, &requests](int signal) {
    if (signal == kWarningSignal) {
      is_warned_ = true;
    } else if (requests.is_another(monotonic_now()) && ++interrupts_ >= interrupts_max_) {
      (void)std::fputs("mayfly: ended at once, without another checkpoint\n", stderr);
      ::_exit(kExitFailed);  // workers are bound to us and end with us
    }
  });
  if (Result<void> host = check_reachable_host(requested_.bind_host); !host.ok()) {
    return refuse(host.error(), kExitUsage);
  }
  Result<std::unique_ptr<CoordinatorProcess>> process =
      CoordinatorProcess::start(requested_, listener_, CoordinatorProcess::Unfinished::kRefuse,
                                [this](std::uint32_t count) { return scale(count); });
  if (!process.ok()) {
    return refuse(process.error(), kExitUsage);
  }
  process_ = std::move(process).value();
  if (process_ == nullptr) {
    return kExitDone;
  }
  if (Result<void> started = start_all(); !started.ok()) {
    CoordinatorProcess::undo(std::move(process_));
    return refuse(started.error(), kExitFailed);
  }
  process_->keep();
  std::optional<JobEnd> end;
  while (!end.has_value()) {
    const bool plays = on_poll_ || chaos_.has_more();
    end = process_->recorder().news().wait(monotonic_now() +
                                           (plays ? kPollIntervalOfFaults : kPollInterval));
    follow_signals();
    process_->recorder().look_at_members(process_->server());
    poll_workers();
    chaos_.play(process_->recorder().progress().last_step(), monotonic_now());
    if (on_poll_ && !end.has_value()) {
      on_poll_(*this);
    }
    follow_scale_requests();
  }
  wait_for_workers(*end);
  if (refusal_.has_value() && end->outcome == elastic::Outcome::kFailed) {
    end->was_refused = true;
    (void)refuse({Errc::kRefused, fmt::format("{} (log: {})", *refusal_, refusal_log_)},
                 kExitUsage);
  }
  const bool all_well = have_programs_succeeded();
  const int code = process_->finish(*end);
  return code == kExitDone && !all_well ? kExitFailed : code;
}

Result<void> LocalLauncher::start_all() {
  for (std::uint32_t i = 0; i < process_->config().workers; ++i) {
    TRY(start_worker());
  }
  for (std::uint32_t i = 0; i < dedicated_servers(process_->config()); ++i) {
    TRY(start_server(i));
  }
  return {};
}

/// Each worker reads the run directory's config.toml, not the launcher's command line or
/// environment: a worker that starts an hour later must use the settings with which the job began.
Result<std::size_t> LocalLauncher::start_worker() {
  const auto number = static_cast<std::uint32_t>(workers_.size());
  std::vector<std::string> argv;
  if (command_.empty()) {
    argv = command_of("worker");
    argv.insert(argv.end(), {"--chaos", chaos_of_worker(plan_, number), "--worker-number",
                             std::to_string(number)});
  } else {
    argv = command_of_user(number);
  }
  if (on_start_) {
    TRY(on_start_(number, argv));
  }
  keep_newest_logs(process_->config().run_dir, "flight-member-", kFlightLogsMax);
  TRY_ASSIGN(std::string id, provider_.start(argv, log_path(number)));
  workers_.emplace_back().id = id;
  return std::size_t{number};
}

/// The arguments of every process of the job: the paths of its settings and its coordinator's
/// address.
std::vector<std::string> LocalLauncher::command_of(const char* what) const {
  return {program_,        what,
          "--config",      process_->config().run_dir + "/config.toml",
          "--coordinator", process_->server().endpoint(),
          "--launched"};
}

std::vector<std::string> LocalLauncher::command_of_user(std::uint32_t number) const {
  const JobConfig& config = process_->config();
  return command_at({.coordinator = process_->server().endpoint(),
                     .number = number,
                     .job_file = config.run_dir + "/config.toml",
                     .run_dir = config.run_dir,
                     .token_file = config.token_file,
                     .bind_host = {},
                     .settings = {{"server", program_name(number)}}},
                    command_);
}

Result<void> LocalLauncher::start_server(std::uint32_t index) {
  std::vector<std::string> argv = command_of("ps-server");
  argv.insert(argv.end(), {"--ps-index", std::to_string(index), "--chaos", ""});
  TRY_ASSIGN(std::string id, provider_.start(argv, fmt::format("{}/logs/ps-server-{}.log",
                                                               process_->config().run_dir, index)));
  Worker& server = workers_.emplace_back();
  server.id = id;
  server.is_server = true;
  return {};
}

/// A worker that carries a parameter server is not replaced, because its shards were part of the
/// job.
bool LocalLauncher::replace(const Worker& dead) {
  const JobConfig& config = process_->config();
  const bool was_wanted =
      !dead.is_server && !dead.leave_requested && !dead.is_leaving && !dead.is_killed_by_plan;
  const bool is_over = process_->recorder().news().end().has_value() || interrupts_ > 0;
  if (!was_wanted || !dead.has_failed || dead.has_refused || is_over || carries_servers(config) ||
      restarts_ >= config.max_restarts) {
    return false;
  }
  ++restarts_;
  const std::string what = fmt::format("a local worker died ({})", dead.end);
  const Result<std::size_t> started = start_worker();
  process_->note("restart", started.ok()
                                ? fmt::format("{}: worker {} replaces it, restart {} of {}", what,
                                              started.value(), restarts_, config.max_restarts)
                                : fmt::format("{}: {}", what, started.error().detail));
  return started.ok();
}

/// Looks for processes that have ended. A refusal before the first view ends the command, and a
/// dead worker may be replaced. A job without any worker fails with the last worker's error instead
/// of waiting for --min-workers-timeout.
void LocalLauncher::poll_workers() {
  bool any_running = false;
  std::vector<Worker> dead;
  for (const cloud_hooks::ServerStatus& status : provider_.poll()) {
    const auto worker = std::find_if(workers_.begin(), workers_.end(),
                                     [&](const Worker& w) { return w.id == status.id; });
    const bool computes = worker == workers_.end() || !worker->is_server;
    any_running = any_running || (status.alive() && computes);
    if (worker == workers_.end() || status.alive() || !worker->running) {
      continue;
    }
    worker->running = false;
    worker->end = how_it_ended(status);
    worker->has_refused = status.signal == 0 && status.exit_code == kExitUsage;
    worker->has_failed = status.signal != 0 || status.exit_code != kExitDone;
    dead.push_back(*worker);
    log::info(fmt::format("local worker {} ended: {}", worker - workers_.begin(), worker->end));
  }
  const elastic::JobStatus status = process_->server().status();
  follow_membership(status);
  if (heed_refusals(status)) {
    return;
  }
  std::size_t servers = 0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    servers += workers_[i].is_server && workers_[i].running ? 1 : 0;
    last = workers_[i].is_server ? last : i;
  }
  for (const Worker& worker : dead) {
    any_running = replace(worker) || any_running;
  }
  const bool others = status.members.size() > servers;
  if (!any_running && !others && !process_->recorder().news().end().has_value()) {
    const char* when = status.view == ViewId{} ? " before the job began" : "";
    process_->server().fail(
        fmt::format("all workers have ended{}; the last one ended with {}: {} (log: {})", when,
                    workers_[last].end, last_line(last), log_path(last)));
  }
}

bool LocalLauncher::heed_refusals(const elastic::JobStatus& status) {
  if (refusal_.has_value()) {
    return true;
  }
  const auto worker = std::find_if(workers_.begin(), workers_.end(),
                                   [](const Worker& w) { return w.has_refused && !w.is_server; });
  if (worker == workers_.end() || status.view != ViewId{} ||
      process_->recorder().news().end().has_value()) {
    return false;
  }
  const auto number = static_cast<std::size_t>(worker - workers_.begin());
  refusal_ = reason_in(last_line(number));
  refusal_log_ = log_path(number);
  process_->server().fail(*refusal_);
  return true;
}

std::string LocalLauncher::last_line(std::size_t worker) const {
  const std::string line = last_line_of_log(log_path(worker));
  return line.empty() ? "see " + log_path(worker) : line;
}

std::string LocalLauncher::log_path(std::size_t worker) const {
  return fmt::format("{}/logs/worker-{}.log", process_->config().run_dir, worker);
}

/// An id does not show which process a member is: the coordinator assigns ids, and one process may
/// get several in turn. A program is recognised by the name in its environment, because a script
/// may have started it.
void LocalLauncher::follow_membership(const elastic::JobStatus& status) {
  const bool is_over = process_->recorder().news().end().has_value();
  const std::string here = host_name();
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    const auto pid = static_cast<std::uint32_t>(provider_.pid_of(worker.id));
    const auto is_its = [&, name = program_name(i)](const elastic::MemberStatus& one) {
      return command_.empty() ? one.pid == pid && one.host == here : one.server == name;
    };
    const auto member = std::find_if(status.members.begin(), status.members.end(), is_its);
    const bool is_member = member != status.members.end();
    worker.is_leaving =
        worker.is_leaving || (is_member && member->phase == elastic::MemberPhase::kLeaving);
    worker.was_member = worker.was_member || is_member;
    worker.pid = is_member ? static_cast<int>(member->pid) : worker.pid;
    if (!is_over) {  // at the end of the job no worker is a member any more
      worker.is_lost = worker.running && worker.was_member && !is_member;
    }
  }
}

/// Called on the coordinator's thread, which must not start processes, because children are bound
/// to the thread that starts them. So it only stores the number for the loop of run().
Result<std::string> LocalLauncher::scale(std::uint32_t count) {
  if (carries_servers(requested_) && count < requested_.workers) {
    return Error{Errc::kInvalidInput,
                 fmt::format("the first {} workers run the parameter servers and cannot be removed",
                             requested_.workers)};
  }
  scale_to_ = count;
  return fmt::format("changing to {} workers", count);
}

/// The process of a lost worker may take a while to end, because the kernel frees its memory first.
bool LocalLauncher::is_anybody_lost() const {
  return std::ranges::any_of(workers_, &Worker::is_lost);
}

/// The requested number counts workers that stay. A lost worker may be about to join again, and
/// then it counts; so its end is awaited before others are started in its place.
void LocalLauncher::follow_scale_requests() {
  if (scale_to_ == 0) {
    return;
  }
  follow_membership(process_->server().status());
  const Instant now = monotonic_now();
  scale_waits_since_ = scale_waits_since_.value_or(now);
  if (is_anybody_lost() && now - *scale_waits_since_ < kLostEndsTimeout) {
    return;  // a lost worker counts only if it joins again
  }
  scale_waits_since_.reset();
  const std::uint32_t wanted = scale_to_.exchange(0);
  std::vector<std::size_t> running;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].stays()) {
      running.push_back(i);
    }
  }
  for (std::size_t n = running.size(); n < wanted; ++n) {
    if (const Result<std::size_t> started = start_worker(); !started.ok()) {
      process_->note("scale", started.error().detail);
      return;
    }
  }
  for (std::size_t n = running.size(); n > wanted; --n) {  // the youngest leave first
    Worker& youngest = workers_[running[n - 1]];
    youngest.leave_requested = true;
    (void)signal_worker(running[n - 1], SIGTERM);
  }
  process_->note("scale", fmt::format("scale: from {} to {} workers", running.size(), wanted));
}

void LocalLauncher::follow_signals() {
  const bool is_warned = is_warned_.exchange(false);
  if (interrupts_ > interrupts_seen_ || is_warned) {
    interrupts_seen_ = interrupts_;
    process_->note("stop",
                   "stopping at the next step with a checkpoint; interrupt again to end at once");
    process_->server().stop("stopped by the user");
  }
}

/// The job has ended and its members were dismissed: they write what was requested and end by
/// themselves. The provider's destructor kills processes that still run after the deadline.
void LocalLauncher::wait_for_workers(const JobEnd& end) {
  // A program of the user's own may continue after the training until it receives a signal to end.
  const bool are_programs = !command_.empty();
  Instant programs_end_by{INT64_MAX};
  LastReports reports(end, process_->server().status().view != ViewId{}, monotonic_now());
  if (are_programs) {
    interrupts_max_ = interrupts_seen_ + 2;
  }
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    worker.outlived_job = are_programs && worker.running && worker.was_member && !worker.is_lost;
    (void)signal_worker(i, SIGCONT);  // a stopped process must receive the next signal
  }
  const auto is_time_left = [&](Instant now) {
    const auto news = LastReports::look(*process_, interrupts_ > interrupts_seen_);
    return are_programs ? now < programs_end_by : reports.is_time_left(now, news);
  };
  while (std::ranges::any_of(workers_, &Worker::running) && is_time_left(monotonic_now())) {
    std::this_thread::sleep_for(kPollInterval);
    poll_workers();
    if (are_programs && interrupts_ > interrupts_seen_) {
      interrupts_seen_ = interrupts_;
      programs_end_by = monotonic_now() + kProgramsExitTimeout;
      process_->note("stop",
                     "the job is over; ending its programs; interrupt again to end at once");
      for (std::size_t i = 0; i < workers_.size(); ++i) {
        (void)signal_worker(i, SIGTERM);
      }
    }
  }
}

/// A program may fail after its training loop, too, for example when it saves the model once more.
bool LocalLauncher::have_programs_succeeded() {
  bool all_well = true;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const Worker& worker = workers_[i];
    if (worker.outlived_job && worker.has_failed && !refusal_.has_value()) {
      all_well = false;
      process_->note("program_failed_afterwards",
                     fmt::format("the program of local worker {} failed after the job's end ({}): "
                                 "{}; its output is in {}",
                                 i, worker.end, last_line(i), log_path(i)));
    }
  }
  return all_well;
}

std::vector<std::size_t> LocalLauncher::running_workers() const {
  std::vector<std::size_t> running;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].running && !workers_[i].is_server) {
      running.push_back(i);
    }
  }
  return running;
}

Result<void> LocalLauncher::kill_for_good(std::size_t worker) {
  workers_[worker].is_killed_by_plan = true;
  return signal_worker(worker, SIGKILL);
}

/// A script does not pass signals on. SIGTERM goes only to the program in it, because the script
/// may do more of the user's work after the program's end.
Result<void> LocalLauncher::signal_worker(std::size_t worker, int signal) {
  const std::string& id = workers_[worker].id;
  const int pid = workers_[worker].pid;
  if (const int started = provider_.pid_of(id);
      pid != started && started > 0 && !ancestors_up_to(started, pid).empty()) {
    ::kill(pid, signal);
    if (signal == SIGTERM) {
      return {};
    }
  }
  return provider_.signal(id, signal);
}

}  // namespace mayfly::engine
