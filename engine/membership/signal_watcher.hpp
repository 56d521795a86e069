#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <thread>
#include <vector>

#include "base/time.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::engine {

/// Delivers signals as calls on a thread of their own, so that reactions may lock and allocate. A
/// handler with a pipe rather than sigwait(): libraries start threads before main, which would take
/// the signals with their default action. A handler that was there before, as a program of the
/// user's own may have, is called as well, except for SIGINT's: the watcher alone handles Ctrl-C.
/// At most one at a time per process.
class SignalWatcher {
 public:
  SignalWatcher(std::initializer_list<int> signals, std::function<void(int)> on_signal);
  /// Restores the actions of before, unless others have been put in place meanwhile.
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
