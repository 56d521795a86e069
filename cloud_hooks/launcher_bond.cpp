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
  // The order matters: a launcher that dies after the check below still kills us.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (std::to_string(::getppid()) != launcher) {
    ::_exit(1);
  }
}

}  // namespace mayfly::cloud_hooks
