#pragma once

// Access tokens for Google's interfaces: from a file, in exchange for a service account's key, or
// from the metadata server of this machine. A service account's key signs a statement (JWT, RS256)
// that is exchanged for a token; these functions are pure except for OpenSSL's arithmetic, and any
// thread may call them. A GoogleTokens is used by one thread at a time.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "cloud_hooks/core/provider.hpp"
#include "cloud_hooks/http/http_sender.hpp"
#include "cloud_hooks/http/shared_key.hpp"

namespace mayfly::cloud_hooks {

/// The parts of a key file ("type": "service_account") that are needed here.
struct ServiceAccount {
  std::string client_email;
  std::string private_key_id;
  std::string private_key;  ///< PEM; never printed, never sent
  std::string token_uri = "https://oauth2.googleapis.com/token";
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

struct GoogleTokenOptions {
  /// File with a token, read each time (`gcloud auth print-access-token >FILE`). Has precedence.
  std::string token_file;
  /// Key file of a service account. Without it and without token_file, the metadata server.
  std::string key_file;
  std::string metadata_endpoint = "http://169.254.169.254";
};

/// Reads CLOUDSDK_AUTH_ACCESS_TOKEN_FILE, GOOGLE_APPLICATION_CREDENTIALS and GCE_METADATA_HOST from
/// the environment, the names that Google's own tools use.
[[nodiscard]] GoogleTokenOptions google_token_options(
    const std::function<std::string(const std::string&)>& get);

using SharedGoogleToken = SharedKey<std::string>;

class GoogleTokens {
 public:
  /// `unix_seconds` is the wall clock. `sender` must outlive this. `shared`: the token of several
  /// such objects; null: this one has its own.
  GoogleTokens(GoogleTokenOptions options, HttpSender& sender,
               std::function<std::int64_t()> unix_seconds,
               std::shared_ptr<SharedGoogleToken> shared = nullptr);

  /// A token that is valid for at least five more minutes, if the server issues such tokens. kRate
  /// if the server does not answer now. kAuth if there is none, or if a metadata server has never
  /// answered.
  [[nodiscard]] Answer<std::string> token();
  /// Google has refused the last token: the next call requests another one.
  void forget() { shared_->forget(); }
  /// A readable name of the source of the tokens.
  [[nodiscard]] std::string source() const;

 private:
  [[nodiscard]] Answer<std::string> from_file() const;
  [[nodiscard]] Result<HttpRequest> key_request() const;
  [[nodiscard]] Result<HttpRequest> metadata_request() const;
  /// True if Google's clock differs from this machine's; statements use Google's time from now on.
  [[nodiscard]] bool learn_time(const HttpResponse& answer);
  [[nodiscard]] Answer<std::string> take(const HttpResponse& answer);

  const GoogleTokenOptions options_;
  HttpSender& sender_;
  const std::function<std::int64_t()> unix_seconds_;
  const std::shared_ptr<SharedGoogleToken> shared_;
  std::int64_t clock_offset_ = 0;  // seconds from this machine's clock to Google's
};

}  // namespace mayfly::cloud_hooks
