#pragma once

// Servers of AWS's EC2, over its Query interface. See docs/cloud_providers.md.
//
// Ec2Promises holds servers that EC2 has recently created. EC2 is eventually consistent: for a
// while its lists may lack a new server, so a list without it proves nothing yet. All provider
// objects of one job in this process share it. Any thread.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "cloud_hooks/core/provider.hpp"
#include "cloud_hooks/ec2/aws_credentials.hpp"
#include "cloud_hooks/ec2/ec2_messages.hpp"
#include "cloud_hooks/http/http_sender.hpp"

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

/// `unix_seconds` is the wall clock; if it is wrong, it is corrected with the time in EC2's
/// answers. kInvalidInput if an option cannot be used, also for an endpoint that is neither
/// https:// nor on this host. Several providers of one job share `promises` and `role`; null: this
/// one has its own.
[[nodiscard]] Result<std::unique_ptr<Provider>> make_ec2_provider(
    Ec2Options options, AwsCredentialOptions credentials, std::unique_ptr<HttpSender> sender,
    std::function<std::int64_t()> unix_seconds, std::shared_ptr<Ec2Promises> promises = nullptr,
    std::shared_ptr<SharedAwsRole> role = nullptr);

}  // namespace mayfly::cloud_hooks
