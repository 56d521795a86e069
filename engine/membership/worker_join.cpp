#include "engine/membership/worker_join.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <filesystem>

#include "base/check.hpp"
#include "base/log.hpp"
#include "base/time.hpp"
#include "engine/membership/exit_codes.hpp"
#include "engine/run/records.hpp"

namespace mayfly::engine {
namespace {

constexpr Duration kFirstAnswerMax = seconds(60);
constexpr Duration kFirstRejoinDelay = milliseconds(250);
constexpr Duration kLogInterval = seconds(1);

}  // namespace

Duration first_answer_timeout(const JobConfig& config) {
  const double wanted_ns = config.coordinator_timeout * 1e9;
  const bool is_shorter = wanted_ns > 0 && wanted_ns < static_cast<double>(kFirstAnswerMax.count());
  // A worker connects before it validates its settings, so any number is possible here.
  return is_shorter ? Duration(static_cast<std::int64_t>(wanted_ns)) : kFirstAnswerMax;
}

Result<std::unique_ptr<elastic::MemberClient>> join_job(const JobConfig& config,
                                                        const JoinFacts& facts, Duration timeout) {
  elastic::MemberClientOptions options;
  options.endpoints = coordinator_endpoints(config);
  options.token = facts.token;
  options.sentinel = facts.sentinel;
  options.coordinator_timeout =
      Duration(static_cast<std::int64_t>(config.coordinator_timeout * 1e9));
  options.address = facts.address;
  options.server = config.server;
  options.fingerprint = facts.fingerprint;
  options.former = facts.former;
  options.reports = facts.reports;
  if (facts.signals != nullptr) {
    options.gives_up = [signals = facts.signals] { return signals->asked(); };
  }
  std::error_code absent;
  if (const std::string logs = config.run_dir + "/logs";
      std::filesystem::is_directory(logs, absent)) {
    options.flight_dir = logs;  // a worker on a machine of its own has no run directory
  }
  return elastic::connect_member(options, monotonic_now() + timeout);
}

Error with_advice(const JobConfig& config, const Error& error) {
  if (error.code != Errc::kRefused) {
    return error;
  }
  // Names in the fingerprint.
  if (error.detail.starts_with("device: ")) {
    return {error.code,
            fmt::format("{}; the job at {} requires the same device for all workers: only one with "
                        "--reduction fp32, without audits and parameter servers, accepts any",
                        error.detail, config.coordinator)};
  }
  return error;
}

int exit_code_of(const Error& failure) {
  switch (failure.code) {
    case Errc::kRefused: return kExitUsage;
    case Errc::kAborted: return kExitDone;
    default: return kExitFailed;
  }
}

int exit_code_of(const elastic::member_effect::Leave& leave) {
  switch (leave.reason) {
    case elastic::DismissReason::kJobDone:
    case elastic::DismissReason::kDrained: return kExitDone;
    case elastic::DismissReason::kJobStopped: return kExitStopped;
    case elastic::DismissReason::kEvicted:
    case elastic::DismissReason::kCorrupted:
    case elastic::DismissReason::kUnreachable:
    case elastic::DismissReason::kJobFailed: return kExitFailed;
  }
  UNREACHABLE("every reason has an exit code");
}

std::optional<Duration> RejoinLimit::evicted(Instant now) {
  while (!evictions_.empty() && now - evictions_.front() > kWindow) {
    evictions_.pop_front();
  }
  if (evictions_.size() + 1 >= kEvictionsMax) {
    return std::nullopt;
  }
  evictions_.push_back(now);
  const std::size_t before = evictions_.size() - 1;
  return before == 0 ? Duration::zero() : kFirstRejoinDelay * (std::int64_t{1} << (before - 1));
}

bool may_rejoin(const elastic::member_effect::Leave& leave, RejoinLimit& limit,
                const LeaveSignals& signals) {
  if (!leave.may_rejoin || signals.asked()) {
    return false;
  }
  const std::optional<Duration> wait = limit.evicted(monotonic_now());
  if (!wait) {
    log::error(fmt::format("evicted {} times within a minute, giving up: {}",
                           RejoinLimit::kEvictionsMax, leave.detail));
    return false;
  }
  std::this_thread::sleep_for(*wait);
  log::info(leave.former ? "joining again" : "joining again as a new member");
  return !signals.asked();
}

LogSender::LogSender(elastic::MemberClient& client) : client_(client), thread_([this] { run(); }) {}

LogSender::~LogSender() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  while (send_some()) {
  }
}

void LogSender::run() {
  pthread_setname_np(pthread_self(), "log");
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLogInterval, [this] { return stopping_; })) {
    lock.unlock();
    send_some();
    lock.lock();
  }
}

bool LogSender::send_some() {
  log::KeptLines kept = log::take_kept_lines(LogRecord::kBytesMax);
  if (kept.text.empty()) {
    return false;
  }
  client_.send_report(encode_record(LogRecord{kept.first, std::move(kept.text)}));
  return true;
}

}  // namespace mayfly::engine
