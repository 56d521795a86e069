#pragma once

// Workers started by a launcher on this host must not outlive it, however it dies.

namespace mayfly::cloud_hooks {

/// Environment variable that carries the launcher's process id to a worker.
inline constexpr const char* kLauncherPidVariable = "MAYFLY_LAUNCHER_PID";

/// If this process was started by a LocalProvider, the kernel kills it from now on when the
/// launcher dies; if the launcher is already dead, the process exits at once. Does nothing in other
/// processes. Call early in main. A process forked from this one (the sentinel) is not affected.
void die_with_launcher();

}  // namespace mayfly::cloud_hooks
