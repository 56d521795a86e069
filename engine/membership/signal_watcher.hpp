#pragma once

#include <signal.h>

#include <functional>
#include <initializer_list>
#include <optional>
#include <thread>
#include <vector>

#include "base/time.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::engine {

/// The warning of Slurm and other launchers that the processes of a job are about to be ended. They
/// send it to all of them, and SIGTERM later.
inline constexpr int kWarningSignal = SIGUSR1;

/// Delivers signals as calls on a thread of its own, so that reactions may lock and allocate. It
/// uses a handler with a pipe rather than sigwait(): libraries start threads before main, and
/// signals delivered to these threads would have their default action. The handler that a program
/// of the user's own has installed before is called as well, except for SIGINT: the watcher alone
/// handles Ctrl-C. At most one watcher may exist in a process at a time.
class SignalWatcher {
 public:
  SignalWatcher(std::initializer_list<int> signals, std::function<void(int)> on_signal);
  /// Restores the previous actions, unless the program has replaced the watcher's meanwhile.
  ~SignalWatcher();

 private:
  std::vector<int> signals_;
  UniqueFd read_end_;
  UniqueFd write_end_;
  std::function<void(int)> on_signal_;
  std::thread thread_;
};

/// Which signals are requests of their own. `timeout` signals a process and then its group: what
/// follows at once is the same request, and must not count as the one that does not wait.
class StopRequests {
 public:
  [[nodiscard]] bool is_another(Instant now);

 private:
  std::optional<Instant> counted_at_;
};

}  // namespace mayfly::engine
