#include "engine/launch/coordinator_main.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/log.hpp"
#include "base/parse.hpp"
#include "base/thread_priority.hpp"
#include "base/unique_fd.hpp"
#include "engine/cloud/cloud.hpp"
#include "engine/cloud/cloud_plan.hpp"
#include "engine/cloud/hosts.hpp"
#include "engine/config/bind_host.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/launch/last_reports.hpp"
#include "engine/launch/launch.hpp"
#include "engine/membership/exit_codes.hpp"
#include "engine/membership/run_place.hpp"
#include "engine/membership/signal_watcher.hpp"
#include "engine/run/run_directory.hpp"

namespace mayfly::engine {
namespace {

constexpr Duration kLookInterval = milliseconds(5);
constexpr Duration kCloudPollInterval = milliseconds(100);  // for speeds; a loss ends a wait
constexpr Duration kEvaluationTimeout = seconds(600);       // of one checkpoint

/// The program that started this coordinator for a job of its own (library/python), if any.
class Owner {
 public:
  Owner() {
    const char* const text = std::getenv("MAYFLY_OWNER_PID");
    if (const int pid = text == nullptr ? 0 : number_in<int>(text).value_or(0); pid > 0) {
      end_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
      is_gone_ = !end_.valid() && errno == ESRCH;
    }
  }
  [[nodiscard]] bool has_ended() const {
    pollfd end{.fd = end_.get(), .events = POLLIN, .revents = 0};
    return is_gone_ || (end_.valid() && ::poll(&end, 1, 0) == 1);
  }

 private:
  UniqueFd end_;  // readable after the owner's end; invalid on systems without pidfd_open()
  bool is_gone_ = false;
};

/// Returns when the job has ended. If the owner has ended, the coordinator stops a job that has no
/// members, because no other process would stop it.
JobEnd watch(CoordinatorProcess& process, Cloud* cloud) {
  const Owner owner;
  while (true) {
    const Duration patience = cloud != nullptr ? kCloudPollInterval : seconds(1);
    if (auto end = process.recorder().news().wait(monotonic_now() + patience)) {
      return *end;
    }
    process.recorder().look_at_members(process.server());
    if (owner.has_ended() && process.server().status().members.empty()) {
      process.server().stop("its program has ended");
    }
    if (cloud != nullptr) {
      cloud->look();
    }
  }
}

void wait_for_last_reports(CoordinatorProcess& process, const JobEnd& end,
                           const std::atomic<int>& interrupts) {
  const int interrupts_before = interrupts;
  LastReports reports(end, process.server().status().view != ViewId{}, monotonic_now());
  LastReports::News news = LastReports::look(process, false);
  while (news.has_members && reports.is_time_left(monotonic_now(), news)) {
    std::this_thread::sleep_for(kLookInterval);
    news = LastReports::look(process, interrupts > interrupts_before);
  }
}

/// Waits while evaluators measure the last checkpoints. The wait for an evaluator ends when its
/// connection breaks, or when it has measured nothing for too long.
void wait_for_last_evaluations(CoordinatorProcess& process, Cloud* cloud,
                               const std::atomic<int>& interrupts) {
  std::uint64_t measured = 0;
  Instant deadline = monotonic_now() + kEvaluationTimeout;
  const int interrupts_before = interrupts;
  while (process.evaluations().drain() && monotonic_now() < deadline &&
         interrupts == interrupts_before) {
    if (cloud != nullptr) {
      cloud->keep_evaluators();
    }
    std::uint64_t now = 0;
    for (const EvaluatorStatus& evaluator : process.evaluations().evaluators()) {
      now += evaluator.measured;
    }
    if (now > measured) {
      deadline = monotonic_now() + kEvaluationTimeout;
    }
    measured = now;
    std::this_thread::sleep_for(kCloudPollInterval);
  }
}

/// `cloud`: null without a provider, and while the job begins or ends.
Result<std::string> scale_with(Cloud* cloud, bool has_provider, std::uint32_t count) {
  if (cloud != nullptr) {
    return cloud->scale(count);
  }
  if (has_provider) {
    return Error{Errc::kRefused, "the job has not begun to request servers, or has ended"};
  }
  return Error{Errc::kUnsupported,
               "this coordinator starts no workers itself; start them with `mayfly worker "
               "--coordinator HOST:PORT`, or drain one"};
}

/// A second request to stop ends the process without any wait, even for the release of servers.
[[noreturn]] void end_at_once(const JobConfig& config) {
  if (!config.cloud_provider.empty() && config.cloud_provider != "local") {
    (void)std::fputs(
        "mayfly: ended at once; servers that were not released still run: the same command "
        "continues with them, and `mayfly cloud release` ends them\n",
        stderr);
  }
  ::_exit(kExitFailed);
}

/// New servers connect to this address, so it must be one that they can reach.
Result<void> check_host_for_cloud(const JobConfig& config) {
  return config.cloud_provider.empty() ? Result<void>() : check_reachable_host(config.bind_host);
}

}  // namespace

int run_coordinator(const JobConfig& config, RunListener& listener) {
  Result<JobConfig> prepared = config;
  if (config.cloud_provider == "ssh" && !config.cloud_dry_run) {
    JobConfig resolved = config;
    resolve_defaults(resolved);
    prepared = prepare_hosts(config, resolved.cache_dir, holds_unfinished_job(config.run_dir),
                             [&](const std::string& line) { listener.on_event(line); });
  }
  if (prepared.ok()) {  // the number of workers is known
    const Result<void> spelled_out = spell_out_switch_order(prepared.value());
    prepared = spelled_out.ok() ? std::move(prepared) : spelled_out.error();
  }
  return prepared.ok() ? run_coordinator(prepared.value(), listener,
                                         CoordinatorProcess::Unfinished::kContinue,
                                         CoordinatorProcess::Facts::kMayCome)
                       : refuse(prepared.error(), kExitUsage);
}

int run_coordinator(const JobConfig& config, RunListener& listener,
                    CoordinatorProcess::Unfinished unfinished, CoordinatorProcess::Facts facts,
                    std::optional<LockFile> run_lock) {
  if (config.cloud_dry_run) {
    return show_cloud_plan(config);
  }
  if (Result<void> host = check_host_for_cloud(config); !host.ok()) {
    return refuse(host.error(), kExitUsage);
  }
  std::atomic<int> interrupts = 0;
  std::atomic<bool> is_stopped = false;
  std::mutex server_mutex;
  elastic::CoordinatorServer* server = nullptr;  // guarded by server_mutex; null when it may go
  StopRequests requests;
  const SignalWatcher signals({SIGINT, SIGTERM, kWarningSignal}, [&](int signal) {
    if (signal != kWarningSignal && requests.is_another(monotonic_now()) && ++interrupts >= 2) {
      end_at_once(config);
    }
    is_stopped = true;
    const std::lock_guard lock(server_mutex);
    if (server != nullptr) {
      server->stop("stopped by the user");
    }
  });
  std::atomic<Cloud*> asking = nullptr;
  Result<std::unique_ptr<CoordinatorProcess>> process = CoordinatorProcess::start(
      config, listener, unfinished,
      [&asking, has_provider = !config.cloud_provider.empty()](std::uint32_t count) {
        return scale_with(asking.load(), has_provider, count);
      },
      std::move(run_lock), facts);
  if (!process.ok()) {
    return refuse(process.error(), kExitUsage);
  }
  if (process.value() == nullptr) {
    return kExitDone;
  }
  const auto lend_to_signals = [&](elastic::CoordinatorServer* lent) {
    const std::lock_guard lock(server_mutex);
    server = lent;
  };
  lend_to_signals(&process.value()->server());
  if (is_stopped) {  // the signal came before there was a server to stop
    process.value()->server().stop("stopped by the user");
  }
  process.value()->recorder().print(fmt::format("coordinator at {}, token file {}",
                                                process.value()->server().endpoint(),
                                                process.value()->config().token_file));
  Result<std::unique_ptr<Cloud>> cloud = Cloud::start(*process.value());
  if (!cloud.ok()) {
    lend_to_signals(nullptr);
    CoordinatorProcess::undo(std::move(process).value());
    return refuse(cloud.error(), kExitUsage);
  }
  process.value()->keep();
  asking = cloud.value().get();
  use_low_latency_slice();
  const JobEnd end = watch(*process.value(), asking);
  asking = nullptr;
  lend_to_signals(nullptr);
  if (cloud.value() != nullptr) {
    cloud.value()->close();
  }
  wait_for_last_reports(*process.value(), end, interrupts);
  wait_for_last_evaluations(*process.value(), cloud.value().get(), interrupts);
  if (cloud.value() != nullptr) {
    cloud.value()->finish();
  }
  return process.value()->finish(end);
}

}  // namespace mayfly::engine
