#pragma once

// The clouds on which the contract is tested, and how to reach each of them in the fake cloud.

#include <memory>
#include <string>
#include <vector>

#include "cloud_hooks/core/provider.hpp"
#include "cloud_hooks/ec2/aws_credentials.hpp"
#include "cloud_hooks/gce/google_tokens.hpp"
#include "cloud_hooks/http/http_sender.hpp"

namespace mayfly::cloud_hooks {

struct SiteOptions {
  std::string job = "job-a";
  bool own_credentials = false;  ///< a key file or the environment; else the metadata server
  Duration answer_max = seconds(10);
  std::shared_ptr<SharedGoogleToken> token = nullptr;
  std::shared_ptr<SharedAwsRole> role = nullptr;
};

struct Site {
  std::string name;     ///< of the service in the fake cloud
  std::string make;     ///< operation that makes servers
  std::string look;     ///< operation that asks for one server
  std::string list;     ///< operation that lists servers
  std::string release;  ///< operation that ends a server
  std::string machine_type;
  std::string credentials;           ///< operation of the metadata server that gives them
  std::vector<std::string> secrets;  ///< must not appear anywhere
  std::unique_ptr<Provider> (*provider)(const SiteOptions& options);
};

/// Compute Engine and EC2.
[[nodiscard]] const std::vector<Site>& sites();

/// The real client, which trusts the fake cloud. Answers must arrive within `answer_max`; pauses
/// are skipped.
[[nodiscard]] std::unique_ptr<HttpSender> impatient_client(Duration answer_max);

}  // namespace mayfly::cloud_hooks
