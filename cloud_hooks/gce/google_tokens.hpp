#pragma once

// Access tokens for Google's interfaces: from a file, for a service account's key, or from the
// metadata server of the machine we run on. One thread at a time.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cloud_hooks/core/provider.hpp"
#include "cloud_hooks/http/http_sender.hpp"
#include "cloud_hooks/sign/shared_key.hpp"

namespace mayfly::cloud_hooks {

struct GoogleTokenOptions {
  /// File with a token, read anew each time (`gcloud auth print-access-token >FILE`). Wins.
  std::string token_file;
  /// Key file of a service account. Without it and without token_file, the metadata server.
  std::string key_file;
  std::string metadata_endpoint = "http://169.254.169.254";
};

/// As the environment says: CLOUDSDK_AUTH_ACCESS_TOKEN_FILE, GOOGLE_APPLICATION_CREDENTIALS and
/// GCE_METADATA_HOST, the names that Google's own tools use.
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

  /// A token that is good for five more minutes, if the server gives such. kAuth if there is none
  /// to be had; kRate if there was one before and the server just does not answer.
  [[nodiscard]] Answer<std::string> token();
  /// The last token was refused: the next call asks for another one.
  void forget() { shared_->forget(); }
  /// Where tokens come from, for people.
  [[nodiscard]] std::string source() const;

 private:
  [[nodiscard]] Answer<std::string> from_file() const;
  [[nodiscard]] Result<HttpRequest> key_request() const;
  [[nodiscard]] Result<HttpRequest> metadata_request() const;
  /// True if Google's clock says that ours is off; statements are dated by Google's from now on.
  [[nodiscard]] bool learn_time(const HttpResponse& answer);
  [[nodiscard]] Answer<std::string> take(const HttpResponse& answer);

  const GoogleTokenOptions options_;
  HttpSender& sender_;
  const std::function<std::int64_t()> unix_seconds_;
  const std::shared_ptr<SharedGoogleToken> shared_;
  std::int64_t clock_offset_ = 0;  // seconds from our clock to Google's
};

}  // namespace mayfly::cloud_hooks
