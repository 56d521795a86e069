#include "base/process/program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <thread>

#include "base/check.hpp"
#include "base/process/spawn.hpp"
#include "base/system_error.hpp"
#include "base/unique_fd.hpp"

namespace mayfly {
namespace {

constexpr std::size_t kErrorBytesKept = 4096;
constexpr std::size_t kLineCharactersMax = 300;
constexpr double kLookAgainMs = 100;  // interval of checks whether the program was called off
constexpr double kWaitMaxMs = 1000;
constexpr Duration kExitPollInterval = milliseconds(2);
constexpr Duration kKillPatience = seconds(2);

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return system_error("no pipe", errno);
  }
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// 0 or an errno.
int spawn(const ProgramCall& call, int in, int out, int err, int& pid) {
  SpawnPlan plan;
  plan.copy(STDIN_FILENO, in);
  plan.copy(STDOUT_FILENO, out);
  plan.copy(STDERR_FILENO, err);
  plan.lead_group();
  return plan.start(call.argv, merged_environment(call.environment, call.without), pid);
}

/// Appends the bytes that can be read now; false at the end of the stream.
bool read_some(int fd, std::string& text) {
  char buffer[16384];
  const ssize_t count = ::read(fd, buffer, sizeof buffer);
  if (count > 0) {
    text.append(buffer, static_cast<std::size_t>(count));
    return true;
  }
  return count < 0 && (errno == EAGAIN || errno == EINTR);
}

/// True if a program that runs must be killed; `result.end` contains the reason.
bool must_end(const ProgramCall& call, Instant deadline, ProgramResult& result) {
  if (call.is_called_off && call.is_called_off()) {
    result.end = ProgramResult::End::kCalledOff;
    return true;
  }
  if (monotonic_now() >= deadline) {
    result.end = ProgramResult::End::kTimedOut;
    return true;
  }
  return false;
}

/// Writes to and reads from a running program until its output ends or the time-out expires.
class Conversation {
 public:
  Conversation(const ProgramCall& call, UniqueFd in, UniqueFd out, UniqueFd err)
      : call_(call), in_(std::move(in)), out_(std::move(out)), err_(std::move(err)) {
    ::fcntl(in_.get(), F_SETFL, O_NONBLOCK);
  }

  /// False if the program must be killed; `result.end` contains the reason.
  bool run(Instant deadline, ProgramResult& result) {
    while (out_.valid() || err_.valid()) {
      if (call_.input.size() == written_) {
        in_.reset();
      }
      if (must_end(call_, deadline, result)) {
        return false;
      }
      pollfd waits[3] = {{in_.get(), POLLOUT, 0}, {out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}};
      const double wait_max_ms = call_.is_called_off ? kLookAgainMs : kWaitMaxMs;
      const double left_ms = std::max(to_ms(deadline - monotonic_now()), 0.0) + 1;
      if (::poll(waits, 3, static_cast<int>(std::min(left_ms, wait_max_ms))) <= 0) {
        continue;
      }
      if (waits[0].revents != 0) {
        write_some();
      }
      if (waits[1].revents != 0 && !read_some(out_.get(), result.output)) {
        out_.reset();
      }
      if (waits[2].revents != 0 && !read_some(err_.get(), result.errors)) {
        err_.reset();
      }
      if (result.errors.size() > 2 * kErrorBytesKept) {
        result.errors.erase(0, result.errors.size() - kErrorBytesKept);
      }
      if (result.output.size() > call_.output_bytes_max) {
        result.end = ProgramResult::End::kTooMuchOutput;
        return false;
      }
    }
    return true;
  }

 private:
  void write_some() {
    const ssize_t count =
        ::write(in_.get(), call_.input.data() + written_, call_.input.size() - written_);
    if (count >= 0) {
      written_ += static_cast<std::size_t>(count);
    } else if (errno != EAGAIN && errno != EINTR) {
      written_ = call_.input.size();  // the program has closed its input
    }
  }

  const ProgramCall& call_;
  UniqueFd in_, out_, err_;
  std::size_t written_ = 0;
};

/// Waits for the end of the process, which may continue after the end of its output; false if it
/// must be killed.
bool wait_for_exit(const ProgramCall& call, pid_t pid, Instant deadline, ProgramResult& result) {
  while (true) {
    if (const std::optional<ProcessEnd> over = end_if_over(pid)) {
      const bool signalled = over->signal != 0;
      result.end = signalled ? ProgramResult::End::kSignalled : ProgramResult::End::kExited;
      result.code = signalled ? over->signal : over->exit_code;
      return true;
    }
    if (must_end(call, deadline, result)) {
      return false;
    }
    std::this_thread::sleep_for(kExitPollInterval);
  }
}

/// A process of another user, as behind sudo, cannot be killed, and a process that waits for a lost
/// disk does not end. Then the function returns without waiting for it.
void kill_group(pid_t pid) {
  ::kill(-pid, SIGKILL);
  const Instant deadline = monotonic_now() + kKillPatience;
  while (!end_if_over(pid)) {
    if (monotonic_now() >= deadline) {
      std::thread([pid] { wait_for_end(pid); }).detach();
      return;
    }
    std::this_thread::sleep_for(kExitPollInterval);
  }
}

}  // namespace

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string::npos) {
    return "";
  }
  const std::size_t newline = text.find_last_of('\n', end);
  const std::size_t begin = newline == std::string::npos ? 0 : newline + 1;
  std::string line = text.substr(begin, std::min(end + 1 - begin, kLineCharactersMax));
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return line;
}

std::string ProgramResult::summary() const {
  const std::string words = last_line(errors);
  const std::string tail = words.empty() ? "" : ": " + words;
  switch (end) {
    case End::kExited: return "exit code " + std::to_string(code) + tail;
    case End::kSignalled: return "ended by signal " + std::to_string(code) + tail;
    case End::kTimedOut: return "no answer in time" + tail;
    case End::kTooMuchOutput: return "too long an answer" + tail;
    case End::kCalledOff: return "called off" + tail;
  }
  UNREACHABLE("all ends are listed");
}

Result<ProgramResult> run_program(const ProgramCall& call) {
  if (call.argv.empty() || call.argv[0].empty()) {
    return Error{Errc::kInvalidInput, "no program to run"};
  }
  Result<Pipe> in = make_pipe();
  Result<Pipe> out = make_pipe();
  Result<Pipe> err = make_pipe();
  for (const Result<Pipe>* made : {&in, &out, &err}) {
    if (!made->ok()) {
      return made->error();
    }
  }
  pid_t pid = 0;
  const int failure = spawn(call, in.value().read_end.get(), out.value().write_end.get(),
                            err.value().write_end.get(), pid);
  if (failure != 0) {
    const Errc code = failure == ENOENT || failure == EACCES ? Errc::kNotFound : Errc::kIo;
    return system_error("cannot run " + call.argv[0], failure, code);
  }
  in.value().read_end.reset();
  out.value().write_end.reset();
  err.value().write_end.reset();
  const Instant deadline = monotonic_now() + call.timeout;
  ProgramResult result;
  Conversation conversation(call, std::move(in.value().write_end), std::move(out.value().read_end),
                            std::move(err.value().read_end));
  if (!conversation.run(deadline, result) || !wait_for_exit(call, pid, deadline, result)) {
    kill_group(pid);
  }
  return result;
}

}  // namespace mayfly
