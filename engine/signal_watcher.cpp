#include "engine/signal_watcher.hpp"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace mayfly::engine {
namespace {

constexpr int kWakeUp = SIGUSR2;  // ends the thread; sent only to it

}  // namespace

SignalWatcher::SignalWatcher(std::initializer_list<int> signals, std::function<void(int)> on_signal)
    : on_signal_(std::move(on_signal)) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, kWakeUp);
  for (const int signal : signals) {
    sigaddset(&set, signal);
  }
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this, set] {
    pthread_setname_np(pthread_self(), "signals");
    int signal = 0;
    while (sigwait(&set, &signal) == 0 && signal != kWakeUp) {
      on_signal_(signal);
    }
  });
}

SignalWatcher::~SignalWatcher() {
  pthread_kill(thread_.native_handle(), kWakeUp);
  thread_.join();
}

}  // namespace mayfly::engine
