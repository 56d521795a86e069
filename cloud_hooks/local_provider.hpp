#pragma once

// Servers that are processes on this host: the default of `mayfly train`, and the provider with
// which tests and the local launcher start and kill workers. All functions may be called from any
// thread.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "cloud_hooks/core/provider.hpp"

namespace mayfly::cloud_hooks {

struct LocalProviderOptions {
  /// The command that request() starts; may be empty if only start() is used. "{id}" in an argument
  /// is replaced by the server's id.
  std::vector<std::string> argv;
  /// Folder for request()'s log files, one per server: ID.log. Empty: the output of this process.
  std::string log_dir;
  /// Variables that are added to, or replace those of, this process's environment for every server.
  std::vector<std::pair<std::string, std::string>> environment;
  /// Variables of this process's environment that the servers do not get.
  std::vector<std::string> without;
};

class LocalProvider final : public Provider {
 public:
  /// A job may replace thousands of servers. When a server is started, old log files of ended
  /// servers are removed. At most so many files stay: of killed or failed servers, and of other
  /// servers.
  static constexpr std::size_t kFailedLogsMax = 48;
  static constexpr std::size_t kOtherLogsMax = 16;

  explicit LocalProvider(LocalProviderOptions options = {});
  /// Kills (SIGKILL) all processes that still run and waits for them.
  ~LocalProvider() override;

  /// Starts argv[0] (searched in PATH). Its output is appended to `log_path`, or goes to the output
  /// of this process if that is empty. Its input is /dev/null, it inherits no other descriptor, and
  /// it starts with default signal handling. Returns the id: "local-N", N counting from 1.
  /// kInvalidInput for an empty argv, kNotFound for a program that does not exist, kIo otherwise.
  [[nodiscard]] Result<std::string> start(const std::vector<std::string>& argv,
                                          const std::string& log_path);
  /// The process id; 0 if the server is unknown or its process has ended.
  [[nodiscard]] int pid_of(const std::string& id);
  /// Sends a signal, for example SIGTERM, SIGKILL, SIGSTOP or SIGCONT. kNotFound if the process has
  /// ended or the id is unknown.
  [[nodiscard]] Result<void> signal(const std::string& id, int signal_number);
  /// Collects processes that have ended, without waiting, and returns the state of all servers.
  [[nodiscard]] std::vector<ServerStatus> poll();

  /// kConfig for an argv that cannot be started, kCapacity if the system cannot create a process.
  /// Offer and labels of the request are stored but not used, and the startup text is not run,
  /// because argv is the command.
  [[nodiscard]] RequestOutcome request(const ServerRequest& request) override;
  /// Sends SIGTERM, on which a worker drains. The caller decides when to kill it.
  [[nodiscard]] std::optional<ProviderError> release(const std::string& id) override;
  [[nodiscard]] Answer<ServerStatus> status(const std::string& id) override;
  [[nodiscard]] Answer<std::vector<ServerStatus>> list() override { return poll(); }
  [[nodiscard]] Capabilities capabilities() const override;
  [[nodiscard]] std::string preview(const ServerRequest& request) const override;
  [[nodiscard]] std::vector<Finding> examine() override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Environment variable that carries the number of a worker's slot on its host to it: the lowest
/// one that no other server of the same job has there.
inline constexpr const char* kSlotVariable = "MAYFLY_SLOT";

// Workers that a launcher has started on this host must not outlive it, however it dies.

/// Environment variable that carries the launcher's process id to a worker.
inline constexpr const char* kLauncherPidVariable = "MAYFLY_LAUNCHER_PID";

/// If this process was started by a LocalProvider, the kernel kills it from now on when the
/// launcher dies. If the launcher started it through a script or another program, a thread of this
/// process kills it instead, and asks it to leave (SIGTERM) when a process between the two ends. If
/// the launcher is already dead, the process prints an error and exits at once. Does nothing in
/// other processes. Call early in main. A process forked from this one (the sentinel) is not
/// affected.
void die_with_launcher();

}  // namespace mayfly::cloud_hooks
