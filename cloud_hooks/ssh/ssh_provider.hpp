#pragma once

// Servers on hosts that are there already: each is a process that is started over ssh, in a session
// of its own, so it outlives the connection and us. The program is copied along, once per host and
// version; nothing has to be installed there (docs/hosts.md).

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
  std::string bundle;  ///< file with the packed program; empty if places.program is there already
  std::string
      log_dir;  ///< the ends of servers' logs come into it; empty = they are left where they are
};

/// What the providers of one job know together: which hosts answered when, with which servers.
class SshMemory;
[[nodiscard]] std::shared_ptr<SshMemory> make_ssh_memory();

/// A request is for one server, on the host with the most room. Offers are only remembered. A host
/// that does not answer keeps its servers for 20 s, and is then taken for lost, with them: its
/// workers end by themselves when they find no coordinator.
class SshProvider : public Provider {
 public:
  /// Copies the program to every host that has not got it and sees that it runs there; one finding
  /// for each host, in their order.
  [[nodiscard]] virtual std::vector<Finding> install() = 0;
};

[[nodiscard]] std::unique_ptr<SshProvider> make_ssh_provider(SshProviderOptions options,
                                                             std::shared_ptr<SshMemory> memory);

}  // namespace mayfly::cloud_hooks
