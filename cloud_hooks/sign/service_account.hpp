#pragma once

// Google service accounts: the key file, and the signed statement (JWT, RS256) that is exchanged
// for an access token. Pure except for OpenSSL's arithmetic: the time is an argument. Any thread.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace mayfly::cloud_hooks {

/// The parts of a key file ("type": "service_account") that are needed here.
struct ServiceAccount {
  std::string client_email;
  std::string private_key_id;
  std::string private_key;  ///< PEM; never printed, never sent
  std::string token_uri = "https://oauth2.googleapis.com/token";
  std::string project_id;  ///< may be empty
};

/// kInvalidInput if it is not such a file; the text names the missing field, never a value.
[[nodiscard]] Result<ServiceAccount> parse_service_account(std::string_view json);

/// base64url(header).base64url(claims).base64url(signature). kInvalidInput for a key that is not an
/// RSA private key in PEM.
[[nodiscard]] Result<std::string> sign_jwt(std::string_view header_json,
                                           std::string_view claims_json,
                                           std::string_view private_key_pem);

/// The statement that requests `scope`, valid from `unix_seconds` for an hour, the longest time
/// that Google accepts.
[[nodiscard]] Result<std::string> make_assertion(const ServiceAccount& account,
                                                 std::string_view scope, std::int64_t unix_seconds);

}  // namespace mayfly::cloud_hooks
