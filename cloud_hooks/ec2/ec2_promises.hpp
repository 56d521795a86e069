#pragma once

// Servers that EC2 has recently created. EC2 is eventually consistent: for a while its lists may
// lack a new server, so a list without it proves nothing yet. Shared by all provider objects of one
// job in this process. Any thread.

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "cloud_hooks/core/provider.hpp"

namespace mayfly::cloud_hooks {

class Ec2Promises {
 public:
  /// The time during which a server that EC2 does not know may be a new one.
  static constexpr Duration kUnknownMax = seconds(120);

  void add(Instant now, const ServerStatus& server);
  /// EC2 has listed the server: from now on its lists are authoritative for it.
  void known(const std::string& id);
  /// The server as it was created, if that was recent and it has not been listed since.
  [[nodiscard]] std::optional<ServerStatus> find(Instant now, const std::string& id) const;
  /// All such servers, by id.
  [[nodiscard]] std::vector<ServerStatus> all(Instant now) const;

 private:
  struct Promise {
    Instant made;
    ServerStatus server;
  };

  mutable std::mutex mutex_;
  std::map<std::string, Promise> promises_;  // guarded by mutex_; by id
};

}  // namespace mayfly::cloud_hooks
