#pragma once

// Workers started by a launcher on this host must not outlive it, however it dies.

namespace mayfly::cloud_hooks {

/// Environment variable that carries the launcher's process id to a worker.
inline constexpr const char* kLauncherPidVariable = "MAYFLY_LAUNCHER_PID";

/// If this process was started by a LocalProvider: from now on the kernel kills it when the
/// launcher dies; if the launcher is dead already, the process exits at once. Otherwise nothing.
/// Call early in main. A process forked from this one (the sentinel) is not bound.
void die_with_launcher();

}  // namespace mayfly::cloud_hooks
