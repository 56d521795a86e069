#pragma once

// Brings what this process logs to the coordinator's run directory (engine/run/member_logs.hpp)
// while it takes part in a job, so that the lines are there even if this host is lost.

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>

#include "elastic/net/member_client.hpp"

namespace mayfly::engine {

class LogSender {
 public:
  /// Of what is logged between two memberships; what a loop of errors writes beyond it is lost.
  static constexpr std::size_t kKeptBytes = std::size_t{64} << 10;

  /// Sends what log::keep_lines() has kept and will keep, some 4 KiB a second at most, through
  /// `client`, which must outlive it. Thread "log".
  explicit LogSender(elastic::MemberClient& client);
  /// Sends all that is left, so that last words are not lost.
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
