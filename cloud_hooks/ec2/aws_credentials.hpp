#pragma once

// Keys for AWS, from the environment or those of the role of this machine (IMDSv2), and Signature
// Version 4, which authenticates a request without sending the secret. Signing is pure except for
// OpenSSL's hashes: the time is an argument, so published test vectors can be checked. An
// AwsCredentialSource is used by one thread at a time.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cloud_hooks/core/provider.hpp"
#include "cloud_hooks/http/http_sender.hpp"
#include "cloud_hooks/http/message.hpp"
#include "cloud_hooks/http/shared_key.hpp"

namespace mayfly::cloud_hooks {

struct AwsCredentials {
  std::string access_key;
  std::string secret_key;     ///< never printed, never sent
  std::string session_token;  ///< of a role; empty for a user's own keys
};

struct AwsScope {
  std::string region;   ///< for example "eu-west-1"
  std::string service;  ///< for example "ec2"
};

/// "20150830T123600Z" for seconds since 1970.
[[nodiscard]] std::string aws_time(std::int64_t unix_seconds);

/// The text whose hash is signed: method, path, sorted query, the headers below, hash of the body.
/// `signed_headers` is filled with their names, sorted, lower case, joined by ';'.
[[nodiscard]] std::string aws_canonical_request(const HttpRequest& request,
                                                std::string& signed_headers);

/// Adds X-Amz-Date, X-Amz-Security-Token (if the credentials have one) and Authorization. Host and
/// every header that the request already has are signed. The request must not have been signed
/// before. `unix_seconds` must be within five minutes of AWS's clock.
void aws_sign(HttpRequest& request, const AwsCredentials& credentials, const AwsScope& scope,
              std::int64_t unix_seconds);

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
