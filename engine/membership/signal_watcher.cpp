#include "engine/membership/signal_watcher.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "base/check.hpp"

namespace mayfly::engine {
namespace {

constexpr Duration kSameRequest = milliseconds(200);

std::atomic<int> pipe_for_handler = -1;
std::atomic<pid_t> owner_of_pipe = -1;
// The actions that the watcher has replaced. An entry is written before the watcher's handler for
// that signal is installed.
std::array<struct sigaction, NSIG> actions_before;

void call_handler_before(int signal, siginfo_t* info, void* context) {
  const struct sigaction& before = actions_before[static_cast<std::size_t>(signal)];
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  }
}

// Async-signal-safe: it writes one byte and calls the previous handler. In a forked child that has
// not replaced the actions, the signal must not be written to the parent's pipe.
void on_any_signal(int signal, siginfo_t* info, void* context) {
  if (::getpid() != owner_of_pipe.load()) {
    ::sigaction(signal, &actions_before[static_cast<std::size_t>(signal)], nullptr);
    ::raise(signal);  // delivered when this handler returns
    return;
  }
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(signal);
  [[maybe_unused]] const ssize_t written = ::write(pipe_for_handler.load(), &byte, 1);
  if (signal != SIGINT) {
    call_handler_before(signal, info, context);
  }
  errno = saved;
}

bool is_watchers(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_any_signal;
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
        return;  // the destructor writes a zero byte
      }
    }
  });
  for (const int signal : signals_) {
    struct sigaction wanted {};
    wanted.sa_sigaction = on_any_signal;
    wanted.sa_flags = SA_RESTART | SA_SIGINFO;
    sigemptyset(&wanted.sa_mask);
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    if (!is_watchers(before)) {  // else the program has restored the handler of an earlier watcher
      actions_before[static_cast<std::size_t>(signal)] = before;
    }
    ::sigaction(signal, &wanted, nullptr);
  }
}

SignalWatcher::~SignalWatcher() {
  for (const int signal : signals_) {
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    if (is_watchers(now)) {
      ::sigaction(signal, &actions_before[static_cast<std::size_t>(signal)], nullptr);
    }
  }
  const unsigned char end = 0;
  [[maybe_unused]] const ssize_t written = ::write(write_end_.get(), &end, 1);
  thread_.join();
  pipe_for_handler = -1;
}

bool StopRequests::is_another(Instant now) {
  if (counted_at_.has_value() && now - *counted_at_ < kSameRequest) {
    return false;
  }
  counted_at_ = now;
  return true;
}

}  // namespace mayfly::engine
