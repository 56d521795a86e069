#include "elastic/net/sentinel_process.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/net/sockets.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "elastic/net/frame.hpp"
#include "elastic/net/handshake.hpp"

namespace mayfly::elastic {
namespace {

constexpr Duration kInterval = milliseconds(100);        // between heartbeats
constexpr Duration kIntervalUnarmed = milliseconds(10);  // between checks of `armed`
constexpr Duration kConnectTimeout = milliseconds(500);
constexpr Duration kSendTimeout = milliseconds(500);
constexpr Duration kRetryDelay = milliseconds(200);
constexpr Duration kHangMax = seconds(10);           // of a worker that is no member any more
constexpr Duration kCleanUpMax = seconds(70);        // of one that has given up
constexpr Duration kLookMax = seconds(2);            // between two looks at a worker that runs
constexpr Duration kRefusedRetryDelay = seconds(1);  // until the worker is connected again
constexpr Duration kReportTimeout = seconds(10);     // for the worker's death

enum class Fate { kAlive, kDied, kEndedWell };

/// Sleeps until the worker ends or `patience` has passed. The kernel gives the mutex to this
/// process when its owner dies.
Fate watch(SentinelShared& shared, Duration patience) {
  const std::int64_t until_ns = (monotonic_now() + patience).ns;
  const timespec until{static_cast<time_t>(until_ns / 1'000'000'000),
                       static_cast<long>(until_ns % 1'000'000'000)};
  const int rc = ::pthread_mutex_clocklock(&shared.alive, CLOCK_MONOTONIC, &until);
  if (shared.ended_well.load() || rc == 0) {
    return Fate::kEndedWell;
  }
  return rc == ETIMEDOUT ? Fate::kAlive : Fate::kDied;
}

/// Raises the priority of this process if that is permitted, because a report must not wait while
/// the worker computes. The sentinel sleeps nearly always, so a real-time class does not slow other
/// processes.
void prefer_this_process() {
  sched_param least{};
  least.sched_priority = ::sched_get_priority_min(SCHED_RR);
  if (::sched_setscheduler(0, SCHED_RR, &least) != 0) {
    ::setpriority(PRIO_PROCESS, 0, -10);
  }
}

/// Closes all inherited descriptors and ignores signals: `mpirun` and shells wait until every copy
/// of a pipe is closed, and the worker must answer signals to the process group.
void detach() {
  ::close_range(0, UINT_MAX, 0);
  open_closed_standard_descriptors();
  for (const int ignored : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGTSTP}) {
    ::signal(ignored, SIG_IGN);
  }
  ::prctl(PR_SET_NAME, "mayfly-sentinel");
  prefer_this_process();
}

/// The connection to the worker's coordinator, kept up as long as the worker lives.
class Link {
 public:
  explicit Link(const SentinelShared& shared) : shared_(shared) {}

  /// Connects if there is no connection and the last attempt is not too recent; sends the message
  /// if there is a connection.
  bool send(const Message& message) {
    follow_worker();
    if (!fd_.valid() && monotonic_now() >= next_try_) {
      connect(shared_.connected.load());
    }
    if (fd_.valid() && (peer_closed() || !send_now(message))) {
      fd_.reset();
      next_try_ = monotonic_now() + kRetryDelay;
    }
    return fd_.valid();
  }
  /// The job's coordinator does not accept this process as the sentinel of a member any more.
  [[nodiscard]] bool refused() const { return refused_; }
  /// Sends the last message to this coordinator, over the connection if there is one. True also if
  /// the coordinator refuses this process: then the worker is no member of its job, and it needs no
  /// report.
  bool send_last(std::size_t endpoint, const Message& message) {
    const bool is_connected = fd_.valid() && endpoint == endpoint_ && !peer_closed();
    if (!is_connected) {
      connect(endpoint);
      if (unwelcome_) {
        return true;
      }
    }
    const bool sent = fd_.valid() && send_now(message);
    if (sent) {
      finish();
    }
    fd_.reset();
    return sent;
  }

 private:
  void follow_worker() {
    if (const std::uint32_t now = shared_.connections.load(); now != connections_) {
      connections_ = now;
      fd_.reset();
      next_try_ = {};
    }
  }
  void connect(std::size_t endpoint) {
    endpoint_ = endpoint;
    fd_.reset();
    Hello hello;
    hello.role = Role::kSentinel;
    hello.member = MemberId{shared_.self.load()};
    hello.job = shared_.job.load();
    const ByteSpan token(shared_.token, shared_.token_bytes);
    const Instant deadline = monotonic_now() + kConnectTimeout;
    Result<Answer> answer =
        ask_for_admission(shared_.endpoints[endpoint], token, std::move(hello), deadline);
    const auto* refused = answer.ok() ? std::get_if<Refused>(&answer.value().verdict) : nullptr;
    unwelcome_ = refused != nullptr || (!answer.ok() && answer.error().code == Errc::kRefused);
    refused_ = refused != nullptr && refused->refusal == Refusal::kFinal;
    if (answer.ok() && refused == nullptr) {
      fd_ = std::move(answer.value().fd);
    } else {
      next_try_ = monotonic_now() + (unwelcome_ ? kRefusedRetryDelay : kRetryDelay);
    }
  }
  bool send_now(const Message& message) {
    return send_message(fd_.get(), message, monotonic_now() + kSendTimeout).ok();
  }
  bool peer_closed() {
    std::byte ignored{};
    return receive_some(fd_.get(), &ignored, 1).closed;
  }
  /// Sends an end of file and waits for that of the coordinator, so that the last message is not
  /// lost.
  void finish() {
    ::shutdown(fd_.get(), SHUT_WR);
    (void)receive_message(fd_.get(), monotonic_now() + kSendTimeout);
  }

  const SentinelShared& shared_;
  UniqueFd fd_;
  std::size_t endpoint_ = 0;
  std::uint32_t connections_ = 0;  // number of worker's connections that this process has followed
  Instant next_try_;
  bool unwelcome_ = false;  // by a coordinator that answers, perhaps of another job
  bool refused_ = false;    // by the job's coordinator, for good
};

/// Checks whether the worker's process is stopped (SIGSTOP): then it is alive but does nothing.
class StopWatch {
 public:
  explicit StopWatch(pid_t worker)
      : stat_(::open(("/proc/" + std::to_string(worker) + "/stat").c_str(), O_RDONLY | O_CLOEXEC)) {
  }

  /// Always false without /proc.
  [[nodiscard]] bool is_stopped() const {
    char text[512];
    const ssize_t size = ::pread(stat_.get(), text, sizeof(text), 0);
    const std::string_view line(text, size > 0 ? static_cast<std::size_t>(size) : 0);
    // The line is "pid (name) state ...". The name may contain anything, so it ends at the last
    // parenthesis.
    const std::size_t name_end = line.rfind(')');
    return name_end != std::string_view::npos && line.substr(name_end + 1, 2) == " T";
  }

 private:
  UniqueFd stat_;
};

/// Decides when a worker that is no member any more and hangs in its own work must be killed:
/// otherwise it would keep its device and its memory until a user finds it. To be asked several
/// times a second while the worker's process runs. If it was not asked for a while, the worker was
/// stopped, or both processes were: that time does not count, and the worker may join again.
class HangWatch {
 public:
  [[nodiscard]] bool hangs(const WorkerPosition& position, Duration most, Instant now) {
    const Duration unseen = now - std::exchange(asked_at_, now);
    since_ = unseen > kLookMax ? since_ + unseen : since_;
    if (position.moves != moves_ || waits_for_others(position.activity)) {
      moves_ = position.moves;
      since_ = now;
    }
    return now - since_ > most;
  }

 private:
  std::uint64_t moves_ = 0;
  Instant since_ = monotonic_now();
  Instant asked_at_ = since_;
};

/// Reports the worker's death to each coordinator of the list that can be reached within a while,
/// and exits. The worker may have died together with its coordinator or with its host's network,
/// and the next coordinator must not wait for it. If there is only one coordinator, reporting to it
/// is enough.
[[noreturn]] void report_and_exit(const SentinelShared& shared, Link& link) {
  WorkerDied died{"the worker's process died", true, Incarnation{shared.incarnation.load()},
                  shared.author.load()};
  const std::size_t count = shared.endpoint_count;
  const std::size_t first = shared.connected.load();
  std::vector<bool> reached(count, false);
  const Instant deadline = monotonic_now() + kReportTimeout;
  while (monotonic_now() < deadline) {
    bool all = true;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t endpoint = (first + i) % count;
      reached[endpoint] = reached[endpoint] || link.send_last(endpoint, died);
      all = all && reached[endpoint];
    }
    if (all) {
      break;
    }
    const timespec pause{0, 250'000'000};
    ::nanosleep(&pause, nullptr);
  }
  ::_exit(0);
}

}  // namespace

void run_sentinel(SentinelShared& shared) {
  const pid_t worker = ::getppid();
  detach();
  const StopWatch stop_watch(worker);
  Link link(shared);
  HangWatch hang_watch;
  bool is_reported = false;  // that the worker has given up
  while (true) {
    const bool armed = shared.armed.load();
    const Fate fate = watch(shared, armed ? kInterval : kIntervalUnarmed);
    if (fate == Fate::kEndedWell || (fate == Fate::kDied && !shared.armed.load())) {
      ::_exit(0);
    }
    if (fate == Fate::kDied) {
      report_and_exit(shared, link);
    }
    // A heartbeat says that the worker is alive even if it is too busy to say so itself.
    const bool has_given_up = shared.gave_up.load();
    if (armed && has_given_up && !is_reported) {
      is_reported = link.send(WorkerDied{"the worker has given up", false, {}, 0});
      hang_watch = HangWatch();  // its time to clean up begins
    } else if (armed && stop_watch.is_stopped()) {
      (void)link.send(Heartbeat{std::nullopt, true});
    } else if (armed) {
      const WorkerPosition position = shared.board.position();
      (void)link.send(Heartbeat{position});
      const Duration most = has_given_up ? kCleanUpMax : kHangMax;
      if (hang_watch.hangs(position, most, monotonic_now()) && link.refused()) {
        ::kill(worker, SIGKILL);
      }
    }
  }
}

}  // namespace mayfly::elastic
