#pragma once

#include <functional>
#include <initializer_list>
#include <thread>
#include <vector>

namespace mayfly::engine {

/// Delivers signals as calls on a thread of their own, so that handlers may lock and allocate.
class SignalWatcher {
 public:
  /// Blocks the signals in the calling thread and all threads it starts afterwards; create it
  /// before any other thread.
  SignalWatcher(std::initializer_list<int> signals, std::function<void(int)> on_signal);
  ~SignalWatcher();

 private:
  std::function<void(int)> on_signal_;
  std::thread thread_;
};

}  // namespace mayfly::engine
