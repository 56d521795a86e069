#pragma once

// Programs that a comparison or a benchmark starts and that must not outlive it.

#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"

namespace mayfly {

/// A process in a process group of its own; the whole group is killed when this object is
/// destroyed, and the process when this process dies.
class ChildProcess {
 public:
  /// Starts `words` (the first is a path or found in PATH) with additions to this process's
  /// environment and without the variables named in `without`, with an empty standard input and
  /// both outputs appended to the file `log`. Only for programs with one thread. kIo if it cannot
  /// be started.
  static Result<ChildProcess> start(
      const std::vector<std::string>& words,
      const std::vector<std::pair<std::string, std::string>>& environment, const std::string& log,
      const std::vector<std::string>& without = {});

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  /// True once the process has ended (and been reaped).
  [[nodiscard]] bool ended();
  /// Sends SIGKILL, and does not wait.
  void send_kill();
  /// Sends SIGKILL to the group, and waits for the end of the process itself.
  void kill();
  /// Waits so long for the process to end by itself; true if it did.
  [[nodiscard]] bool wait_until(Instant deadline);

 private:
  explicit ChildProcess(int pid) : pid_(pid) {}

  int pid_ = -1;  // -1: none, or reaped
};

/// The last line in the log of a program that contains text, not only dashes; empty if there is
/// none.
[[nodiscard]] std::string last_line_of_log(const std::string& path);

}  // namespace mayfly
