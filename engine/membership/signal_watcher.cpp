#include "engine/membership/signal_watcher.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "base/check.hpp"

namespace mayfly::engine {
namespace {

std::atomic<int> pipe_for_handler = -1;
std::atomic<pid_t> owner_of_pipe = -1;

// Async-signal-safe: one write of one byte. A forked child that has not put other actions in place
// must not tell its parent.
void on_any_signal(int signal) {
  if (::getpid() != owner_of_pipe.load()) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);  // when this returns
    return;
  }
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(signal);
  [[maybe_unused]] const ssize_t written = ::write(pipe_for_handler.load(), &byte, 1);
  errno = saved;
}

void set_action(int signal, void (*action)(int)) {
  struct sigaction wanted {};
  wanted.sa_handler = action;
  wanted.sa_flags = SA_RESTART;
  sigemptyset(&wanted.sa_mask);
  ::sigaction(signal, &wanted, nullptr);
}

}  // namespace

SignalWatcher::SignalWatcher(std::initializer_list<int> signals, std::function<void(int)> on_signal)
    : signals_(signals), on_signal_(std::move(on_signal)) {
  int ends[2] = {-1, -1};
  ENSURE(::pipe2(ends, O_CLOEXEC) == 0, "a process has descriptors left when it starts");
  read_end_ = UniqueFd(ends[0]);
  write_end_ = UniqueFd(ends[1]);
  ENSURE(pipe_for_handler.exchange(write_end_.get()) == -1, "one watcher at a time");
  owner_of_pipe = ::getpid();
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "signals");
    unsigned char byte = 0;
    while (true) {
      const ssize_t n = ::read(read_end_.get(), &byte, 1);
      if (n == 1 && byte != 0) {
        on_signal_(byte);
      } else if (n >= 0 || errno != EINTR) {
        return;  // a zero byte is the destructor's
      }
    }
  });
  for (const int signal : signals_) {
    set_action(signal, on_any_signal);
  }
}

SignalWatcher::~SignalWatcher() {
  for (const int signal : signals_) {
    set_action(signal, SIG_DFL);
  }
  const unsigned char end = 0;
  [[maybe_unused]] const ssize_t written = ::write(write_end_.get(), &end, 1);
  thread_.join();
  pipe_for_handler = -1;
}

}  // namespace mayfly::engine
