#pragma once

// A program that obeys lines on its standard input and answers on its standard output.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::collectives::test {

class LineProcess {
 public:
  /// Starts it with these words, the first one being its name, and with these variables before
  /// those of our environment. `hang_ms`: a time that only a hang takes.
  LineProcess(const char* program, std::vector<std::string> words, int hang_ms,
              std::vector<std::string> variables = {})
      : hang_ms_(hang_ms) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    ENSURE((::pipe2(in.data(), O_CLOEXEC) | ::pipe2(out.data(), O_CLOEXEC)) == 0, "two pipes");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    for (char** entry = ::environ; *entry != nullptr; ++entry) {
      variables.emplace_back(*entry);
    }
    const int failure = ::posix_spawn(&pid_, program, &actions, nullptr, pointers_to(words).data(),
                                      pointers_to(variables).data());
    ENSURE(failure == 0, "a member process starts");
    posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    to_ = UniqueFd(in[1]);
    from_ = UniqueFd(out[0]);
  }
  ~LineProcess() { kill(); }
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;

  /// SIGKILL, and waits for the end.
  void kill() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      pid_ = -1;
    }
  }
  void stop() const { ::kill(pid_, SIGSTOP); }
  void go_on() const { ::kill(pid_, SIGCONT); }

  void tell(const std::string& line) {
    const std::string text = line + "\n";
    // One that is gone is found out by hear().
    [[maybe_unused]] const ssize_t written = ::write(to_.get(), text.data(), text.size());
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
  static std::vector<char*> pointers_to(std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    for (std::string& text : texts) {
      pointers.push_back(text.data());
    }
    pointers.push_back(nullptr);
    return pointers;
  }

  const int hang_ms_;
  pid_t pid_ = -1;
  UniqueFd to_;
  UniqueFd from_;
  std::string heard_;
};

}  // namespace mayfly::collectives::test
