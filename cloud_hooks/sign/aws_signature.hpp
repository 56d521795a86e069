#pragma once

// AWS Signature Version 4: authenticates a request without sending the secret. Pure except for
// OpenSSL's hashes: the time is an argument, so published test vectors can be checked. Any thread.

#include <cstdint>
#include <string>

#include "cloud_hooks/http/message.hpp"

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

}  // namespace mayfly::cloud_hooks
