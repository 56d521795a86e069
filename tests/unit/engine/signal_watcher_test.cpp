#include "engine/membership/signal_watcher.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace mayfly::engine {
namespace {

TEST(SignalWatcher, TellsASignalOfItsOwnProcess) {
  std::atomic<int> heard{0};
  const SignalWatcher watcher({SIGUSR1}, [&](int signal) { heard = signal; });
  ::kill(::getpid(), SIGUSR1);
  while (heard == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(heard, SIGUSR1);
}

TEST(SignalWatcher, ASignalToAForkedChildIsTheChilds) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer does not support a fork of several threads";
#endif
  std::atomic<int> heard{0};
  const SignalWatcher watcher({SIGUSR1}, [&](int signal) { heard = signal; });
  const pid_t child = ::fork();
  if (child == 0) {
    ::raise(SIGUSR1);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1) << status;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(heard, 0);
}

std::atomic<int> told_before{0};

void count(int /*signal*/) {
  ++told_before;
}

void other(int /*signal*/) {}

auto handler_of(int signal) {
  struct sigaction now {};
  ::sigaction(signal, nullptr, &now);
  return now.sa_handler;
}

TEST(SignalWatcher, HandlersOfBeforeAreToldAndPutBack) {
  ::signal(SIGUSR1, count);
  ::signal(SIGUSR2, count);
  ::signal(SIGINT, count);
  {
    std::atomic<int> heard{0};
    const SignalWatcher watcher({SIGUSR1, SIGUSR2, SIGINT}, [&](int) { ++heard; });
    ::raise(SIGUSR1);
    EXPECT_EQ(told_before, 1);
    ::raise(SIGINT);  // the watcher alone handles it
    EXPECT_EQ(told_before, 1);
    while (heard < 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ::signal(SIGUSR2, other);
  }
  EXPECT_EQ(handler_of(SIGUSR1), count);
  EXPECT_EQ(handler_of(SIGINT), count);
  EXPECT_EQ(handler_of(SIGUSR2), other) << "put in place meanwhile";
  for (const int signal : {SIGUSR1, SIGUSR2, SIGINT}) {
    ::signal(signal, SIG_DFL);
  }
}

TEST(StopRequests, ASignalToTheGroupAfterThatToTheProcessIsTheSameRequest) {
  StopRequests requests;
  const Instant begin = monotonic_now();
  EXPECT_TRUE(requests.is_another(begin));
  EXPECT_FALSE(requests.is_another(begin));
  EXPECT_FALSE(requests.is_another(begin + milliseconds(100)));
  EXPECT_TRUE(requests.is_another(begin + milliseconds(300))) << "a key that is held down";
  EXPECT_FALSE(requests.is_another(begin + milliseconds(400)));
  EXPECT_TRUE(requests.is_another(begin + seconds(5)));
}

}  // namespace
}  // namespace mayfly::engine
