#pragma once

// Starts programs; the only place in cloud_hooks that does. A plan lists the descriptors that the
// program gets; it inherits no others, no signal is blocked, and all signals have their default
// handling. A plan is used by one thread at a time.

#include <spawn.h>
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace mayfly::cloud_hooks {

/// This process's environment as lines "NAME=value", with additions, which replace variables of the
/// same name. Sorted by name.
[[nodiscard]] std::vector<std::string> merged_environment(
    const std::vector<std::pair<std::string, std::string>>& additions);

class SpawnPlan {
 public:
  SpawnPlan();
  ~SpawnPlan();
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  // Carried out in the order of the calls: a later one may use the result of an earlier one.
  // `theirs` is 0, 1 or 2.
  /// The program opens `path` itself, with flags of open(); a new file gets mode 0644.
  void open(int theirs, const std::string& path, int flags);
  /// The program gets a copy of a descriptor of this process, or of an earlier one of its own.
  void copy(int theirs, int descriptor);
  /// The program leads a process group of its own, so that it can be killed with its children.
  void lead_group();

  /// Starts argv[0], searched in PATH; argv must not be empty. Returns 0 and sets the process id,
  /// or returns an errno.
  [[nodiscard]] int start(std::vector<std::string> argv, std::vector<std::string> environment,
                          pid_t& pid);

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
  bool leads_group_ = false;
};

}  // namespace mayfly::cloud_hooks
