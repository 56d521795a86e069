#pragma once

// How a program is born: the one place of cloud_hooks that starts processes. A plan says which
// descriptors the program gets; besides those it inherits none, and it starts with no signal
// blocked and each as the system handles it by default. A plan is used by one thread at a time.

#include <spawn.h>
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace mayfly::cloud_hooks {

/// Our own environment as lines "NAME=value", with additions, which replace what has their name.
/// In the order of the names.
[[nodiscard]] std::vector<std::string> merged_environment(
    const std::vector<std::pair<std::string, std::string>>& additions);

class SpawnPlan {
 public:
  SpawnPlan();
  ~SpawnPlan();
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  // In this order: a later one may use what an earlier one has made. `theirs` is 0, 1 or 2.
  /// The program opens `path` itself, with flags of open(); a file that it creates is 0644.
  void open(int theirs, const std::string& path, int flags);
  /// The program gets a copy of a descriptor: ours, or one of its own from before.
  void copy(int theirs, int descriptor);
  /// It leads a process group of its own, so that it can be killed with its children.
  void lead_group();

  /// Starts argv[0], searched in PATH; argv is not empty. 0 with its id, or an errno.
  [[nodiscard]] int start(std::vector<std::string> argv, std::vector<std::string> environment,
                          pid_t& pid);

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
  bool leads_group_ = false;
};

}  // namespace mayfly::cloud_hooks
