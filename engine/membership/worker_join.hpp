#pragma once

// The tasks of every process that joins a job: finding the coordinator, sending its log, leaving
// when a signal asks for it, joining again after an eviction, and the exit code.

#include <signal.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/time.hpp"
#include "cloud_hooks/notice/notice_watcher.hpp"
#include "elastic/net/member_client.hpp"
#include "elastic/net/sentinel.hpp"
#include "engine/job/job.hpp"
#include "engine/membership/signal_watcher.hpp"

namespace mayfly::engine {

/// How long a process that was just started tries to reach a coordinator: a minute, or
/// coordinator_timeout if that is shorter. Pure.
[[nodiscard]] Duration first_answer_timeout(const JobConfig& config);

class LeaveSignals;

struct JoinFacts {
  std::string address;  ///< at which other members reach this process
  const Fingerprint& fingerprint;
  const Bytes& token;
  elastic::Sentinel* sentinel = nullptr;    ///< null = none
  std::optional<elastic::Former> former{};  ///< the former membership of a process that joins again
  elastic::ReportQueue* reports =
      nullptr;  ///< reports of that membership that no coordinator has recorded; null = none
  const LeaveSignals* signals = nullptr;  ///< they end the search for a coordinator; null = none
};

/// Connects to the coordinator that `config` names. Fails as elastic::connect_member() does;
/// kAborted if this process was asked to leave meanwhile.
[[nodiscard]] Result<std::unique_ptr<elastic::MemberClient>> join_job(const JobConfig& config,
                                                                      const JoinFacts& facts,
                                                                      Duration timeout);

/// Adds advice to a refusal whose reason does not show what the user can do about it; returns other
/// errors unchanged. Pure.
[[nodiscard]] Error with_advice(const JobConfig& config, const Error& error);

/// The exit code of a process that has not become a member, from the error of join_job().
[[nodiscard]] int exit_code_of(const Error& failure);

/// The exit code of a process that has left the job.
[[nodiscard]] int exit_code_of(const elastic::member_effect::Leave& leave);

/// Asks the coordinator for a planned leave when this process receives SIGTERM, SIGUSR1 (Slurm's
/// warning), Ctrl-C, the notice of a cloud, or a call of ask(). A request that arrives while no
/// client is connected is kept until one is.
class LeaveSignals {
 public:
  /// A program of the user's own that no launcher has started leaves SIGINT out of `signals`,
  /// because it gives Ctrl-C a meaning of its own.
  LeaveSignals(bool launched, const cloud_hooks::NoticeSetting& notice,
               std::initializer_list<int> signals = {SIGTERM, SIGINT, SIGUSR1})
      : watcher_(signals,
                 [this, launched](int signal) {
                   // Ctrl-C reaches all processes of the terminal; if a launcher has started this
                   // one, only the launcher reacts.
                   if (signal != SIGINT || !launched) {
                     ask("asked by a signal");
                   }
                 }),
        notices_(notice, [this](const std::string& reason) { ask("notice: " + reason); }) {}

  [[nodiscard]] bool asked() const {
    const std::lock_guard lock(mutex_);
    return why_.has_value();
  }

  /// From now on requests to leave are sent by `client`; null = they are kept.
  void set_client(elastic::MemberClient* client) {
    const std::lock_guard lock(mutex_);
    client_ = client;
    if (client_ != nullptr && why_) {
      client_->post(elastic::member_event::LeaveAsked{*why_});
    }
  }

  /// Requests the leave for a reason of this process itself. Any thread.
  void ask(const std::string& why) {
    const std::lock_guard lock(mutex_);
    why_ = why;
    if (client_ != nullptr) {
      client_->post(elastic::member_event::LeaveAsked{why});
    }
  }

  /// The process does not need its machine any more. Confirms this to a cloud that has given notice
  /// and waits for the confirmation.
  void has_left() { notices_.has_left(); }

 private:
  mutable std::mutex mutex_;
  elastic::MemberClient* client_ = nullptr;  // guarded by mutex_
  std::optional<std::string> why_;           // guarded by mutex_; set = asked
  SignalWatcher watcher_;                    // these two last: their threads use the rest
  cloud_hooks::NoticeWatcher notices_;
};

/// Limits how often an evicted worker joins again. Pure.
class RejoinLimit {
 public:
  static constexpr std::size_t kEvictionsMax = 5;
  static constexpr Duration kWindow = seconds(60);

  /// To be called when the worker was evicted. Returns how long it has to wait before it joins
  /// again: 0 the first time, then longer and longer. Returns nothing at the eviction number
  /// kEvictionsMax within kWindow, because the worker would only interrupt the other members.
  [[nodiscard]] std::optional<Duration> evicted(Instant now);

 private:
  std::deque<Instant> evictions_;  // within the window
};

/// After a membership: waits until the worker may join again. False if it must not: the coordinator
/// does not want it any more, it was asked to leave, or it is evicted again and again.
[[nodiscard]] bool may_rejoin(const elastic::member_effect::Leave& leave, RejoinLimit& limit,
                              const LeaveSignals& signals);

/// Sends the log lines of this process to the coordinator's run directory
/// (engine/run/member_logs.hpp) while the process is a member, so that they are available even if
/// this host is lost.
class LogSender {
 public:
  /// Limit of the lines that are kept between two memberships. Lines beyond it are lost, as when
  /// errors repeat in a loop.
  static constexpr std::size_t kKeptBytes = std::size_t{64} << 10;

  /// Sends the lines that log::keep_lines() has kept and will keep through `client`, which must
  /// outlive it, at about 4 KiB a second at most. Thread "log".
  explicit LogSender(elastic::MemberClient& client);
  /// Sends the remaining lines first.
  ~LogSender();

 private:
  void run();
  bool send_some();

  elastic::MemberClient& client_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace mayfly::engine
