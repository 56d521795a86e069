#include "cloud_hooks/launcher_bond.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

namespace mayfly::cloud_hooks {

void die_with_launcher() {
  const char* launcher = std::getenv(kLauncherPidVariable);
  if (launcher == nullptr) {
    return;
  }
  // Set before the check below: if the launcher dies after the check, the signal is still sent.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (std::to_string(::getppid()) != launcher) {
    ::_exit(1);
  }
}

}  // namespace mayfly::cloud_hooks
