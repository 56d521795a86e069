#pragma once

// Servers that are processes on this host: the embedded default, and what tests and the local
// launcher kill. All functions may be called from any thread.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "cloud_hooks/core/provider.hpp"

namespace mayfly::cloud_hooks {

struct LocalProviderOptions {
  /// What request() starts; may be empty if only start() is used. "{id}" in an argument is replaced
  /// by the server's id.
  std::vector<std::string> argv;
  /// Folder of request()'s log files, one per server: ID.log. Empty: our own output.
  std::string log_dir;
  /// Added to (or replacing in) our own environment for every server.
  std::vector<std::pair<std::string, std::string>> environment;
};

class LocalProvider final : public Provider {
 public:
  /// A job may replace thousands of servers. Whenever one is started, of those that have ended the
  /// newest log files stay: so many of servers that were killed or failed, and so many of others.
  static constexpr std::size_t kFailedLogsMax = 48;
  static constexpr std::size_t kOtherLogsMax = 16;

  explicit LocalProvider(LocalProviderOptions options = {});
  /// Kills (SIGKILL) whatever still runs and waits for it.
  ~LocalProvider() override;

  /// Starts argv[0] (searched in PATH). Its output is appended to `log_path`; empty: our own
  /// output. Its input is /dev/null, it inherits no other descriptor, and it starts with default
  /// signal handling. Returns the id: "local-N", N counting from 1. kInvalidInput for an empty
  /// argv, kNotFound for a program that does not exist, kIo otherwise.
  [[nodiscard]] Result<std::string> start(const std::vector<std::string>& argv,
                                          const std::string& log_path);
  /// 0 if nobody knows the id or its process has ended.
  [[nodiscard]] int pid_of(const std::string& id);
  /// Sends a signal, for example SIGTERM, SIGKILL, SIGSTOP or SIGCONT. kNotFound if the process has
  /// ended or nobody knows the id.
  [[nodiscard]] Result<void> signal(const std::string& id, int signal_number);
  /// Looks for processes that have ended, without waiting, and returns the state of all.
  [[nodiscard]] std::vector<ServerStatus> poll();

  /// kConfig for an argv that cannot be started, kCapacity if the system has no process to give.
  /// Of the request, the offer and the labels are only remembered, and the start-up text is not
  /// run: argv says what to start.
  [[nodiscard]] RequestOutcome request(const ServerRequest& request) override;
  /// SIGTERM first: a worker drains on it. The policy above decides when to kill.
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

}  // namespace mayfly::cloud_hooks
