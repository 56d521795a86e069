#pragma once

// A child process that reads commands, one a line, on its standard input and answers on its
// standard output.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/process/spawn.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::collectives::test {

class LineProcess {
 public:
  /// Starts a program, words[0], with these variables in place of those of the same name.
  /// `hang_ms`: hear() waits no longer than this; only a hang takes so long.
  LineProcess(const std::vector<std::string>& words, int hang_ms,
              const std::vector<std::pair<std::string, std::string>>& variables = {})
      : hang_ms_(hang_ms) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    ENSURE((::pipe2(in.data(), O_CLOEXEC) | ::pipe2(out.data(), O_CLOEXEC)) == 0, "two pipes");
    SpawnPlan plan;
    plan.copy(STDIN_FILENO, in[0]);
    plan.copy(STDOUT_FILENO, out[1]);
    plan.copy(STDERR_FILENO, STDERR_FILENO);
    const int failure = plan.start(words, merged_environment(variables), pid_);
    ENSURE(failure == 0, "a member process starts");
    ::close(in[0]);
    ::close(out[1]);
    to_ = UniqueFd(in[1]);
    from_ = UniqueFd(out[0]);
  }
  ~LineProcess() { kill(); }
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;

  /// Sends SIGKILL and waits for the end.
  void kill() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      pid_ = -1;
    }
  }
  void stop() const { ::kill(pid_, SIGSTOP); }
  void go_on() const { ::kill(pid_, SIGCONT); }

  /// Sends a line. False if the process has ended; hear() then returns "gone".
  bool tell(const std::string& line) {
    const std::string text = line + "\n";
    return write_all(to_.get(), std::as_bytes(std::span(text))) == text.size();
  }
  /// The next line; "hangs" if none comes, "gone" if the process ended.
  [[nodiscard]] std::string hear() {
    while (heard_.find('\n') == std::string::npos) {
      pollfd ready{.fd = from_.get(), .events = POLLIN, .revents = 0};
      std::array<char, 512> chunk{};
      if (::poll(&ready, 1, hang_ms_) <= 0) {
        return "hangs";
      }
      const ssize_t got = ::read(from_.get(), chunk.data(), chunk.size());
      if (got <= 0) {
        return "gone";
      }
      heard_.append(chunk.data(), static_cast<std::size_t>(got));
    }
    const std::size_t end = heard_.find('\n');
    const std::string line = heard_.substr(0, end);
    heard_.erase(0, end + 1);
    return line;
  }

 private:
  const int hang_ms_;
  pid_t pid_ = -1;
  UniqueFd to_;
  UniqueFd from_;
  std::string heard_;
};

}  // namespace mayfly::collectives::test
