#include "base/process/child_process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "base/file.hpp"
#include "base/process/spawn.hpp"
#include "base/system_error.hpp"
#include "base/text.hpp"

namespace mayfly {
namespace {

constexpr auto kReapInterval = std::chrono::milliseconds(2);
constexpr std::size_t kLogBytesMax = 16U << 20;

using Environment = std::vector<std::pair<std::string, std::string>>;

/// In the child, between fork and exec. The parent had one thread, so that no lock is held here.
[[noreturn]] void become(const std::vector<char*>& words, const Environment& environment,
                         const std::vector<std::string>& without, const char* log, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // mpirun passes this signal on to its ranks
  if (::getppid() != parent) {
    ::_exit(1);
  }
  const int input = ::open("/dev/null", O_RDONLY);
  const int output = ::open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (input < 0 || output < 0 || ::dup2(input, 0) < 0 || ::dup2(output, 1) < 0 ||
      ::dup2(output, 2) < 0) {
    ::_exit(1);
  }
  ::closefrom(3);
  for (const std::string& name : without) {
    ::unsetenv(name.c_str());
  }
  for (const auto& [name, value] : environment) {
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGXFSZ, SIG_DFL);
  ::signal(SIGINT, SIG_DFL);
  ::signal(SIGTERM, SIG_DFL);
  ::execvp(words[0], words.data());
  ::dprintf(2, "cannot start %s: %s\n", words[0], std::strerror(errno));
  ::_exit(127);
}

}  // namespace

Result<ChildProcess> ChildProcess::start(const std::vector<std::string>& words,
                                         const Environment& environment, const std::string& log,
                                         const std::vector<std::string>& without) {
  const std::vector<char*> pointers = exec_pointers(words);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    return system_error("cannot start " + words[0], errno);
  }
  if (pid == 0) {
    become(pointers, environment, without, log.c_str(), parent);
  }
  ::setpgid(pid, pid);  // in both processes, as either may be first
  return ChildProcess(pid);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  return *this;
}

ChildProcess::~ChildProcess() {
  kill();
}

bool ChildProcess::ended() {
  if (pid_ > 0 && end_if_over(pid_)) {
    ::kill(-pid_, SIGKILL);  // kills processes that it may have left behind
    pid_ = -1;
  }
  return pid_ < 0;
}

void ChildProcess::send_kill() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
  }
}

void ChildProcess::kill() {
  if (pid_ > 0) {
    ::kill(-pid_, SIGKILL);
    wait_for_end(pid_);
    pid_ = -1;
  }
}

bool ChildProcess::wait_until(Instant deadline) {
  while (!ended()) {
    if (monotonic_now() >= deadline) {
      return false;
    }
    std::this_thread::sleep_for(kReapInterval);
  }
  return true;
}

std::string last_line_of_log(const std::string& path) {
  const Result<std::string> log = read_text_file(path, kLogBytesMax);
  if (!log.ok()) {
    return {};
  }
  const std::string_view text = log.value();
  return last_line_of(text.substr(0, text.find_last_not_of(" \n\r-") + 1));
}

}  // namespace mayfly
