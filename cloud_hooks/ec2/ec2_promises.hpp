#pragma once

// Servers that EC2 has promised lately. It may not know them everywhere for a while ("eventual
// consistency"), so that a list without them means nothing yet. Shared by all provider objects of
// one job in this process. Any thread.

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
  /// How long an unknown server may be a new one.
  static constexpr Duration kUnknownMax = seconds(120);

  void add(Instant now, const ServerStatus& server);
  /// EC2 has told of it: from now on its word counts.
  void known(const std::string& id);
  /// As it was promised, if that is not too long ago and it has not been seen since.
  [[nodiscard]] std::optional<ServerStatus> find(Instant now, const std::string& id) const;
  /// All such, by id.
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
