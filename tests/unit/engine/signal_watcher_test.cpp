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

}  // namespace
}  // namespace mayfly::engine
