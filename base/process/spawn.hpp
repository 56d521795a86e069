#pragma once

// Starting a program from a process that may have threads, and waiting for the end of a child.
//
// There are three different functions for three needs: a program that a server or a command runs
// (SpawnPlan, and run_program() in program.hpp); a program that must end with this process, which
// only code between fork and exec can arrange (ChildProcess in child_process.hpp); and a copy of
// this process that runs other code of it (fork() in the sentinel, the duty cycle, the
// coordinator's keeper and the holder of MPI's sockets).

#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mayfly {

/// This process's environment as lines "NAME=value", with additions, which replace variables of the
/// same name, and without the variables named in `without`. Sorted by name.
[[nodiscard]] std::vector<std::string> merged_environment(
    const std::vector<std::pair<std::string, std::string>>& additions,
    const std::vector<std::string>& without = {});

/// The texts in the form that the exec calls require, which do not change them; valid as long as
/// `texts`.
[[nodiscard]] std::vector<char*> exec_pointers(const std::vector<std::string>& texts);

/// Signals that Mayfly's main functions ignore, for themselves alone: a lost peer and a full disk
/// are error values. A program of the user's must get their default handling back.
inline constexpr int kIgnoredByMain[] = {SIGPIPE, SIGXFSZ};

/// The descriptors that a program gets; it inherits no others, no signal is blocked, and all
/// signals have their default handling, except that a hangup stays ignored if this process ignores
/// it. One thread at a time.
class SpawnPlan {
 public:
  SpawnPlan();
  ~SpawnPlan();
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  // Actions, carried out in the order of the calls: a later one may use the result of an earlier
  // one. `theirs` is 0, 1 or 2.
  /// The program opens `path` itself, with flags of open(); a new file gets mode 0644.
  void open(int theirs, const std::string& path, int flags);
  /// The program gets a copy of a descriptor of this process, or of one that it got before.
  void copy(int theirs, int descriptor);
  /// The program leads a process group of its own, so that it can be killed with its children.
  void lead_group();

  /// Starts argv[0], searched in PATH; argv must not be empty. Returns 0 and sets the process id,
  /// or returns an errno.
  [[nodiscard]] int start(const std::vector<std::string>& argv,
                          const std::vector<std::string>& environment, int& pid);

 private:
  struct Attributes;
  std::unique_ptr<Attributes> attributes_;
};

/// How a process ended.
struct ProcessEnd {
  int exit_code = 0;  ///< 0 if a signal ended it
  int signal = 0;     ///< 0 if it ended by itself
};

/// Waits for the end of a child of this process, which the system then removes from its records. If
/// the child was removed before, because this process ignores SIGCHLD, as a user's program may, it
/// counts as ended with exit code 0. Any thread, once for each child.
ProcessEnd wait_for_end(int child);
/// The same without waiting: nothing while the child runs.
[[nodiscard]] std::optional<ProcessEnd> end_if_over(int child);

}  // namespace mayfly
