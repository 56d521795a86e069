#include "cloud_hooks/local_provider.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "base/parse.hpp"
#include "base/process/ancestors.hpp"
#include "base/process/spawn.hpp"
#include "base/signals_blocked.hpp"
#include "base/system_error.hpp"

namespace mayfly::cloud_hooks {
namespace {

using Strings = std::vector<std::string>;

/// The log files of servers that have ended.
class EndedLogs {
 public:
  void add(const ServerStatus& server, const std::string& path) {
    const bool has_failed = server.signal != 0 || server.exit_code != 0;
    if (!path.empty()) {
      (has_failed ? failed_ : others_).push_back(path);
    }
  }
  /// A server that is about to be started appends to this file, so the file must stay.
  void take_back(const std::string& path) {
    std::erase(failed_, path);
    std::erase(others_, path);
  }
  void prune() {
    remove_oldest(failed_, LocalProvider::kFailedLogsMax);
    remove_oldest(others_, LocalProvider::kOtherLogsMax);
  }

 private:
  static void remove_oldest(std::deque<std::string>& logs, std::size_t keep) {
    for (; logs.size() > keep; logs.pop_front()) {
      std::error_code ignored;
      std::filesystem::remove(logs.front(), ignored);
    }
  }

  std::deque<std::string> failed_;  // in the order of their ends, as others_
  std::deque<std::string> others_;
};

/// The server's output goes to a file, or to this process's output.
void plan_output(SpawnPlan& plan, const std::string& log_path) {
  plan.open(STDIN_FILENO, "/dev/null", O_RDONLY);
  if (!log_path.empty()) {
    plan.open(STDOUT_FILENO, log_path, O_WRONLY | O_CREAT | O_APPEND);
    plan.copy(STDERR_FILENO, STDOUT_FILENO);
  }
}

/// Runs jobs one by one on a thread that lives as long as this object. The kernel ties a child's
/// parent-death signal to the thread that started it, so no short-lived thread may start one.
class LongLivedThread {
 public:
  LongLivedThread() : thread_([this] { run(); }) {}
  ~LongLivedThread() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  LongLivedThread(const LongLivedThread&) = delete;
  LongLivedThread& operator=(const LongLivedThread&) = delete;

  /// Runs `job` there and waits for it. One caller at a time.
  void run_and_wait(const std::function<void()>& job) {
    std::unique_lock lock(mutex_);
    job_ = &job;
    changed_.notify_all();
    changed_.wait(lock, [this] { return job_ == nullptr; });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || job_ != nullptr; });
      if (stopping_) {
        return;
      }
      (*job_)();
      job_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* job_ = nullptr;  // guarded by mutex_, as is stopping_
  bool stopping_ = false;
  std::thread thread_;
};

void record_end(ServerStatus& server, const ProcessEnd& end) {
  server.state = ServerState::kGone;
  if (end.signal != 0) {
    server.signal = end.signal;
    server.detail = "killed by signal " + std::to_string(server.signal);
  } else {
    server.exit_code = end.exit_code;
    server.detail = "exit code " + std::to_string(server.exit_code);
    server.failed = server.exit_code != 0;
  }
}

Strings with_id(Strings argv, const std::string& id) {
  for (std::string& argument : argv) {
    constexpr std::string_view kMark = "{id}";
    for (std::size_t at = argument.find(kMark); at != std::string::npos;
         at = argument.find(kMark, at + id.size())) {
      argument.replace(at, kMark.size(), id);
    }
  }
  return argv;
}

/// For a worker that the launcher has started through a script or another program. If one of these
/// processes ends, the launcher considers the worker gone, so it is asked to leave. If the
/// launcher, the last of `ancestors`, ends, the worker is killed.
void follow_ends(std::vector<pollfd> ancestors) {
  while (true) {
    ::poll(ancestors.data(), ancestors.size(), -1);
    for (pollfd& one : ancestors) {
      if (one.revents != 0) {
        ::kill(::getpid(), &one == &ancestors.back() ? SIGKILL : SIGTERM);
        one.fd = -1;  // poll() passes over it from now on
      }
    }
  }
}

/// A descriptor for each of these processes, which becomes readable when the process ends; none if
/// the system has no such descriptors.
std::vector<pollfd> ends_of(const std::vector<int>& processes) {
  std::vector<pollfd> all;
  for (const int process : processes) {
    const auto fd = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
    if (fd < 0) {
      return {};
    }
    all.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  }
  return all;
}

ProviderError as_provider_error(const Error& error) {
  const bool lasting = error.code == Errc::kInvalidInput || error.code == Errc::kNotFound;
  return {lasting ? ProviderErrorKind::kConfig : ProviderErrorKind::kCapacity, error.detail};
}

}  // namespace

class LocalProvider::Impl {
 public:
  explicit Impl(LocalProviderOptions options) : options_(std::move(options)) {}
  ~Impl();

  std::mutex mutex_;  // guards all below

  Result<std::string> start(const Strings& argv, const std::string& log_path);
  void reap();
  ServerStatus* find(const std::string& id);
  Result<void> signal(const std::string& id, int number);
  RequestOutcome request(const ServerRequest& request);
  [[nodiscard]] std::vector<ServerStatus> servers() const;
  [[nodiscard]] const LocalProviderOptions& options() const { return options_; }

 private:
  [[nodiscard]] std::uint32_t free_slot() const;
  [[nodiscard]] std::string next_id() const {
    return "local-" + std::to_string(servers_.size() + 1);
  }

  LocalProviderOptions options_;
  std::vector<ServerStatus> servers_;  // in order of start; never shrinks
  std::vector<Instant> started_;       // of each of servers_
  std::vector<std::uint32_t> slots_;   // of each of servers_
  Strings log_paths_;                  // of each of servers_; empty: has none
  EndedLogs ended_logs_;
  std::map<std::string, Strings> ids_of_request_;
  LongLivedThread spawner_;
};

LocalProvider::Impl::~Impl() {
  for (const ServerStatus& server : servers_) {
    if (server.alive()) {
      ::kill(server.pid, SIGKILL);
    }
  }
  for (const ServerStatus& server : servers_) {
    if (server.alive()) {
      wait_for_end(server.pid);
    }
  }
}

std::uint32_t LocalProvider::Impl::free_slot() const {
  std::set<std::uint32_t> taken;
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    if (servers_[i].alive()) {
      taken.insert(slots_[i]);
    }
  }
  std::uint32_t slot = 0;
  while (taken.contains(slot)) {
    ++slot;
  }
  return slot;
}

Result<std::string> LocalProvider::Impl::start(const Strings& argv, const std::string& log_path) {
  if (argv.empty() || argv[0].empty()) {
    return Error{Errc::kInvalidInput, "no program to start"};
  }
  reap();
  ended_logs_.take_back(log_path);
  ended_logs_.prune();
  SpawnPlan plan;
  plan_output(plan, log_path);
  auto additions = options_.environment;
  const std::uint32_t slot = free_slot();
  additions.emplace_back(kLauncherPidVariable, std::to_string(::getpid()));
  additions.emplace_back(kSlotVariable, std::to_string(slot));
  pid_t pid = 0;
  int failure = 0;
  spawner_.run_and_wait(
      [&] { failure = plan.start(argv, merged_environment(additions, options_.without), pid); });
  if (failure != 0) {
    const Errc code = failure == ENOENT ? Errc::kNotFound : Errc::kIo;
    const std::string log_part = log_path.empty() ? "" : " (log " + log_path + ")";
    return system_error("cannot start " + argv[0] + log_part, failure, code);
  }
  ServerStatus& server = servers_.emplace_back();
  server.id = "local-" + std::to_string(servers_.size());
  server.state = ServerState::kRunning;
  server.pid = pid;
  started_.push_back(monotonic_now());
  slots_.push_back(slot);
  log_paths_.push_back(log_path);
  return server.id;
}

void LocalProvider::Impl::reap() {
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    ServerStatus& server = servers_[i];
    // Waits for each server separately: other parts of this process wait for their own children.
    const std::optional<ProcessEnd> end =
        server.alive() ? end_if_over(server.pid) : std::optional<ProcessEnd>();
    if (end) {
      record_end(server, *end);
      ended_logs_.add(server, log_paths_[i]);
    }
  }
}

ServerStatus* LocalProvider::Impl::find(const std::string& id) {
  const auto found = std::find_if(servers_.begin(), servers_.end(),
                                  [&](const ServerStatus& server) { return server.id == id; });
  return found == servers_.end() ? nullptr : &*found;
}

Result<void> LocalProvider::Impl::signal(const std::string& id, int number) {
  reap();
  const ServerStatus* server = find(id);
  // A process that has just died stays a zombie until it is waited for, so its pid is not reused.
  if (server == nullptr || !server->alive() || ::kill(server->pid, number) != 0) {
    return Error{Errc::kNotFound, id + " does not run"};
  }
  return {};
}

std::vector<ServerStatus> LocalProvider::Impl::servers() const {
  std::vector<ServerStatus> copy = servers_;
  const Instant now = monotonic_now();
  for (std::size_t i = 0; i < copy.size(); ++i) {
    if (copy[i].alive()) {
      copy[i].uptime = now - started_[i];
    }
  }
  return copy;
}

RequestOutcome LocalProvider::Impl::request(const ServerRequest& request) {
  RequestOutcome outcome;
  Strings& ids = ids_of_request_[request.request_id];
  while (ids.size() < request.count && !outcome.error) {
    const std::string id = next_id();
    const std::string log_path =
        options_.log_dir.empty() ? "" : options_.log_dir + "/" + id + ".log";
    Result<std::string> started = start(with_id(options_.argv, id), log_path);
    if (started.ok()) {
      servers_.back().request_id = request.request_id;
      servers_.back().offer = request.offer;
      ids.push_back(std::move(started).value());
    } else {
      outcome.error = as_provider_error(started.error());
    }
  }
  for (const std::string& id : ids) {
    outcome.servers.push_back(*find(id));
  }
  return outcome;
}

LocalProvider::LocalProvider(LocalProviderOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
LocalProvider::~LocalProvider() = default;

Result<std::string> LocalProvider::start(const Strings& argv, const std::string& log_path) {
  const std::lock_guard lock(impl_->mutex_);
  return impl_->start(argv, log_path);
}

int LocalProvider::pid_of(const std::string& id) {
  const std::lock_guard lock(impl_->mutex_);
  impl_->reap();
  const ServerStatus* server = impl_->find(id);
  return server != nullptr && server->alive() ? server->pid : 0;
}

Result<void> LocalProvider::signal(const std::string& id, int signal_number) {
  const std::lock_guard lock(impl_->mutex_);
  return impl_->signal(id, signal_number);
}

std::vector<ServerStatus> LocalProvider::poll() {
  const std::lock_guard lock(impl_->mutex_);
  impl_->reap();
  return impl_->servers();
}

RequestOutcome LocalProvider::request(const ServerRequest& request) {
  const std::lock_guard lock(impl_->mutex_);
  impl_->reap();
  return impl_->request(request);
}

std::optional<ProviderError> LocalProvider::release(const std::string& id) {
  const std::lock_guard lock(impl_->mutex_);
  (void)impl_->signal(id, SIGTERM).ok();
  return std::nullopt;
}

Answer<ServerStatus> LocalProvider::status(const std::string& id) {
  return status_in(poll(), id);
}

Capabilities LocalProvider::capabilities() const {
  Capabilities can;
  can.count_max = 1000;
  return can;
}

std::string LocalProvider::preview(const ServerRequest& request) const {
  std::string text = "start " + std::to_string(request.count) + " x";
  for (const std::string& argument : impl_->options().argv) {
    text += " " + argument;
  }
  return text;
}

std::vector<Finding> LocalProvider::examine() {
  return {{!impl_->options().argv.empty(), "processes on this host need nothing else"}};
}

void die_with_launcher() {
  const char* variable = std::getenv(kLauncherPidVariable);
  if (variable == nullptr) {
    return;
  }
  const int launcher = number_in<int>(variable).value_or(0);
  // Set before the check below: if the launcher dies after the check, the signal is still sent.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (launcher == ::getppid()) {
    return;
  }
  const std::vector<int> above = ancestors_up_to(launcher, ::getpid());
  std::vector<pollfd> ends = ends_of(above);
  if (above.empty() ||
      ancestors_up_to(launcher, ::getpid()) != above) {  // some have ended meanwhile
    ::dprintf(STDERR_FILENO,
              "mayfly: process %s (%s), which this worker is to end with, has ended, or has not "
              "started it; the worker ends\n",
              variable, kLauncherPidVariable);
    ::_exit(1);
  }
  if (!ends.empty()) {
    // The kernel would kill this process when the parent's thread ends; follow_ends() asks it to
    // leave.
    ::prctl(PR_SET_PDEATHSIG, 0);
    const SignalsBlocked blocked;
    std::thread(follow_ends, std::move(ends)).detach();
  }
}

}  // namespace mayfly::cloud_hooks
