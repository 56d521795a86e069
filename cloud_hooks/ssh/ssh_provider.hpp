#pragma once

// Servers on existing hosts: each is a process that is started over ssh in a session of its own, so
// it outlives the connection and this process. The program is copied once per host and version;
// nothing has to be installed on the hosts (docs/hosts.md).

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cloud_hooks/core/provider.hpp"
#include "cloud_hooks/ssh/ssh_text.hpp"

namespace mayfly::cloud_hooks {

struct SshProviderOptions {
  std::vector<ssh::Host> hosts;
  /// ssh and its options; the host and a command follow.
  std::vector<std::string> words;
  ssh::Places places;
  /// File with the packed program; empty if places.program is installed, or if there is none: then
  /// no server can be started.
  std::string bundle;
  std::string
      log_dir;  ///< receives the ends of the logs of servers; empty = these logs stay on the hosts
};

/// State that the providers of one job share: when each host answered last, and its servers.
class SshMemory;
[[nodiscard]] std::shared_ptr<SshMemory> make_ssh_memory();

/// A request is for one server, on the host with the most free slots. Offers are only stored. A
/// host that does not answer keeps its servers for 20 s and then counts as lost together with them;
/// its workers end by themselves when they find no coordinator.
class SshProvider : public Provider {
 public:
  /// Copies the program to every host that does not have it and checks that it runs there. One
  /// finding for each host, in their order.
  [[nodiscard]] virtual std::vector<Finding> install() = 0;
};

[[nodiscard]] std::unique_ptr<SshProvider> make_ssh_provider(SshProviderOptions options,
                                                             std::shared_ptr<SshMemory> memory);

}  // namespace mayfly::cloud_hooks
