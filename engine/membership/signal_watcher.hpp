#pragma once

#include <functional>
#include <initializer_list>
#include <thread>
#include <vector>

#include "base/unique_fd.hpp"

namespace mayfly::engine {

/// Delivers signals as calls on a thread of their own, so that reactions may lock and allocate. A
/// handler with a pipe rather than sigwait(): libraries start threads before main, which would take
/// the signals with their default action. At most one at a time per process.
class SignalWatcher {
 public:
  SignalWatcher(std::initializer_list<int> signals, std::function<void(int)> on_signal);
  /// Restores the default action of the signals.
  ~SignalWatcher();

 private:
  std::vector<int> signals_;
  UniqueFd read_end_;
  UniqueFd write_end_;
  std::function<void(int)> on_signal_;
  std::thread thread_;
};

}  // namespace mayfly::engine
