#include "cli/guarded_main.hpp"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>

#include "base/process/spawn.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "engine/membership/exit_codes.hpp"

namespace mayfly::cli {
namespace {

/// Whether the target of standard output has received everything that was printed. If not, prints
/// the reason, except if the reader has closed it, such as `head`.
bool output_arrived() {
  errno = 0;
  const bool is_whole = std::cout.flush().good();
  if (std::fflush(stdout) == 0 && is_whole) {
    return true;
  }
  const int reason = errno;  // 0 if only an earlier write has failed
  pollfd output = {STDOUT_FILENO, POLLOUT, 0};
  const bool is_closed = reason == EPIPE || (::poll(&output, 1, 0) == 1 &&
                                             (output.revents & (POLLERR | POLLHUP)) != 0);
  if (!is_closed) {
    std::cerr << "mayfly: standard output is not complete"
              << (reason == 0 ? "" : std::string(": ") + std::strerror(reason)) << "\n";
  }
  return false;
}

/// A process inherits the sets of blocked and of ignored signals. A hangup that is ignored stays
/// ignored, for nohup; the other inherited settings were not meant for this program.
void prepare_signals() {
  for (const int ignored : kIgnoredByMain) {
    ::signal(ignored, SIG_IGN);
  }
  ::signal(SIGCHLD, SIG_DFL);  // if it is ignored, the exit status of children is lost
  sigset_t none;
  ::sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace

int guarded_main(int argc, char** argv, int (*run)(const std::vector<std::string>& words)) {
  open_closed_standard_descriptors();
  prepare_signals();
  try {
    const int code = run({argv + 1, argv + argc});
    return output_arrived() || code != engine::kExitDone ? code : int{engine::kExitFailed};
  } catch (const std::filesystem::filesystem_error& failure) {
    // The user gave a path that cannot be used: links in a circle, a file in place of a folder.
    std::cerr << "mayfly: " << failure.path1().string() << ": " << failure.code().message() << "\n";
    return engine::kExitUsage;
  } catch (const std::exception& failure) {
    std::cerr << "mayfly: " << reason_of(failure) << "\n";
    return engine::kExitFailed;
  }
}

}  // namespace mayfly::cli
