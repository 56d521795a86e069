#pragma once

// Keys for AWS: from the environment, or those of the role of this machine (IMDSv2). One thread at
// a time.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cloud_hooks/core/provider.hpp"
#include "cloud_hooks/http/http_sender.hpp"
#include "cloud_hooks/sign/aws_signature.hpp"
#include "cloud_hooks/sign/shared_key.hpp"

namespace mayfly::cloud_hooks {

struct AwsCredentialOptions {
  AwsCredentials fixed;  ///< used if it has an access key
  std::string metadata_endpoint = "http://169.254.169.254";
};

/// Reads AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and
/// AWS_EC2_METADATA_SERVICE_ENDPOINT from the environment, the names that AWS's own tools use.
[[nodiscard]] AwsCredentialOptions aws_credential_options(
    const std::function<std::string(const std::string&)>& get);

using SharedAwsRole = SharedKey<AwsCredentials>;

class AwsCredentialSource {
 public:
  /// `unix_seconds` is the wall clock. `sender` must outlive this. `shared`: the role's keys of
  /// several such objects; null: this one has its own.
  AwsCredentialSource(AwsCredentialOptions options, HttpSender& sender,
                      std::function<std::int64_t()> unix_seconds,
                      std::shared_ptr<SharedAwsRole> shared = nullptr);

  /// Keys that are valid for at least five more minutes, if the role has such keys. kAuth if there
  /// are none; kRate if there were some before and the metadata server currently does not answer.
  [[nodiscard]] Answer<AwsCredentials> credentials();
  /// AWS has refused the last keys: the next call asks the metadata server again.
  void forget() { shared_->forget(); }
  /// A readable name of the source of the keys.
  [[nodiscard]] std::string source() const;
  /// `text` without any secret that this object has returned.
  [[nodiscard]] std::string without_secrets(std::string text) const;

 private:
  [[nodiscard]] Answer<std::string> metadata(const std::string& method, const std::string& path,
                                             HttpHeaders headers);
  [[nodiscard]] Answer<AwsCredentials> role_credentials();
  [[nodiscard]] Answer<AwsCredentials> take(const std::string& json);

  const AwsCredentialOptions options_;
  HttpSender& sender_;
  const std::function<std::int64_t()> unix_seconds_;
  const std::shared_ptr<SharedAwsRole> shared_;
};

}  // namespace mayfly::cloud_hooks
