#include "cli/guarded_main.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "base/process/program.hpp"

namespace mayfly::cli {
namespace {

constexpr int kCodeOfChild = 3;
constexpr int kTermIsBlocked = 4;

int run_a_child(const std::vector<std::string>& /*words*/) {
  sigset_t blocked;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  if (::sigismember(&blocked, SIGTERM) == 1) {
    return kTermIsBlocked;
  }
  ProgramCall call;
  call.argv = {"sh", "-c", "exit " + std::to_string(kCodeOfChild)};
  const Result<ProgramResult> ended = run_program(call);
  return ended.ok() ? ended.value().code : -1;
}

TEST(GuardedMain, LearnsHowAChildEndsWhateverItsParentIgnoresAndBlocks) {
  sigset_t blocked;
  sigset_t before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const auto child = ::signal(SIGCHLD, SIG_IGN);
  const auto pipe = ::signal(SIGPIPE, SIG_DFL);
  const auto size = ::signal(SIGXFSZ, SIG_DFL);
  char name[] = "program";
  char* words[] = {name, nullptr};
  EXPECT_EQ(guarded_main(1, words, run_a_child), kCodeOfChild);
  ::signal(SIGXFSZ, size);
  ::signal(SIGPIPE, pipe);
  ::signal(SIGCHLD, child);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace
}  // namespace mayfly::cli
