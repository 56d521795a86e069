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

/// For a process that was just started.
inline constexpr Duration kJoinTimeout = seconds(60);

class LeaveSignals;

struct JoinFacts {
  std::string address;  ///< where other members find us
  const Fingerprint& fingerprint;
  const Bytes& token;
  elastic::Sentinel* sentinel = nullptr;    ///< null = none
  std::optional<elastic::Former> former{};  ///< the member that we were before, if we join again
  elastic::ReportQueue* reports =
      nullptr;  ///< those of it that no coordinator has taken; null = none
  const LeaveSignals* signals = nullptr;  ///< that end the search for a coordinator; null = none do
};

/// Connects to the coordinator that `config` names. Errors as of elastic::connect_member():
/// kAborted if this process was asked to leave meanwhile.
[[nodiscard]] Result<std::unique_ptr<elastic::MemberClient>> join_job(const JobConfig& config,
                                                                      const JoinFacts& facts,
                                                                      Duration timeout);

/// A refusal with what to do about it, where that is not plain from the reason; other errors as
/// they are. Pure.
[[nodiscard]] Error with_advice(const JobConfig& config, const Error& error);

/// The exit code of a process that has not become a member, from the error of join_job().
[[nodiscard]] int exit_code_of(const Error& failure);

/// The exit code of a process that has left the job.
[[nodiscard]] int exit_code_of(const elastic::member_effect::Leave& leave);

/// SIGTERM, SIGUSR1 (what Slurm warns with), Ctrl-C, the notices of a cloud and ask() ask the job
/// for a planned leave; one that comes while there is no client to tell is kept.
class LeaveSignals {
 public:
  /// Ctrl-C is among them only in a program of ours: others have a meaning of their own for it.
  LeaveSignals(bool launched, const cloud_hooks::NoticeSetting& notice,
               std::initializer_list<int> signals = {SIGTERM, SIGINT, SIGUSR1})
      : watcher_(signals,
                 [this, launched](int signal) {
                   // Ctrl-C reaches the whole terminal group; a launcher decides itself what it
                   // means.
                   if (signal != SIGINT || !launched) {
                     ask("asked by a signal");
                   }
                 }),
        notices_(notice, [this](const std::string& reason) { ask("notice: " + reason); }) {}

  [[nodiscard]] bool asked() const {
    const std::lock_guard lock(mutex_);
    return why_.has_value();
  }

  /// From now on `client` is told; null = none.
  void tell(elastic::MemberClient* client) {
    const std::lock_guard lock(mutex_);
    client_ = client;
    if (client_ != nullptr && why_) {
      client_->post(elastic::member_event::LeaveAsked{*why_});
    }
  }

  /// The process has a reason of its own. Any thread.
  void ask(const std::string& why) {
    const std::lock_guard lock(mutex_);
    why_ = why;
    if (client_ != nullptr) {
      client_->post(elastic::member_event::LeaveAsked{why});
    }
  }

  /// The process needs its machine no longer: a cloud that gave notice and waits for that is told.
  void has_left() { notices_.has_left(); }

 private:
  mutable std::mutex mutex_;
  elastic::MemberClient* client_ = nullptr;  // guarded by mutex_
  std::optional<std::string> why_;           // guarded by mutex_; set = asked
  SignalWatcher watcher_;                    // these two last: their threads use the rest
  cloud_hooks::NoticeWatcher notices_;
};

/// How often a worker that was evicted comes back. Pure.
class RejoinLimit {
 public:
  static constexpr std::size_t kEvictionsMax = 5;
  static constexpr Duration kWindow = seconds(60);

  /// The worker was evicted: how long to wait before it joins again (at once the first time, then
  /// longer and longer); nothing after kEvictionsMax within kWindow: then it would only disturb.
  [[nodiscard]] std::optional<Duration> evicted(Instant now);

 private:
  std::deque<Instant> evictions_;  // within the window
};

/// After a membership: waits until the worker may join again; false if it should not: no job wants
/// it, it was asked to go, or it is evicted again and again.
[[nodiscard]] bool may_rejoin(const elastic::member_effect::Leave& leave, RejoinLimit& limit,
                              const LeaveSignals& signals);

/// Sends what this process logs to the coordinator's run directory (engine/run/member_logs.hpp)
/// while it takes part in a job, so that the lines are there even if this host is lost.
class LogSender {
 public:
  /// Limit of the lines that are kept between two memberships. A loop of errors may write more; the
  /// rest is lost.
  static constexpr std::size_t kKeptBytes = std::size_t{64} << 10;

  /// Sends what log::keep_lines() has kept and will keep, some 4 KiB a second at most, through
  /// `client`, which must outlive it. Thread "log".
  explicit LogSender(elastic::MemberClient& client);
  /// Sends all that is left, so that the last lines are not lost.
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
