#include "cloud_hooks/gce/google_tokens.hpp"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <memory>

#include "base/file.hpp"
#include "base/try_assign.hpp"
#include "cloud_hooks/http/http_sender.hpp"
#include "cloud_hooks/http/json_fields.hpp"
#include "cloud_hooks/http/message.hpp"

namespace mayfly::cloud_hooks {
namespace {

struct KeyDeleter {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

using Key = std::unique_ptr<EVP_PKEY, KeyDeleter>;

/// Makes a key with a pass phrase an error; OpenSSL would otherwise ask on the terminal.
int no_pass_phrase(char*, int, int, void*) {
  return -1;
}

Result<Key> read_key(std::string_view pem) {
  const std::unique_ptr<BIO, KeyDeleter> bio(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Key key(bio == nullptr ? nullptr
                         : PEM_read_bio_PrivateKey(bio.get(), nullptr, no_pass_phrase, nullptr));
  if (key == nullptr || EVP_PKEY_base_id(key.get()) != EVP_PKEY_RSA) {
    return Error{Errc::kInvalidInput, "the private key is not an RSA key in PEM"};
  }
  return key;
}

Result<std::string> rs256(EVP_PKEY* key, std::string_view bytes) {
  const std::unique_ptr<EVP_MD_CTX, KeyDeleter> context(EVP_MD_CTX_new());
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  std::size_t size = 0;
  if (context == nullptr ||
      EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key) != 1 ||
      EVP_DigestSign(context.get(), nullptr, &size, data, bytes.size()) != 1) {
    return Error{Errc::kInvalidInput, "the private key cannot sign"};
  }
  std::string signature(size, '\0');
  if (EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size, data,
                     bytes.size()) != 1) {
    return Error{Errc::kInvalidInput, "the private key cannot sign"};
  }
  signature.resize(size);
  return signature;
}

/// False if the field exists and is not a string.
bool take_string(const boost::json::object& object, std::string_view name, std::string& into) {
  const boost::json::value* const value = object.if_contains(name);
  if (value != nullptr && value->is_string()) {
    into = std::string(value->get_string());
  }
  return value == nullptr || value->is_string();
}

constexpr const char* kScope = "https://www.googleapis.com/auth/compute";
constexpr std::size_t kFileBytesMax = 64 * 1024;

ProviderError no_token(std::string detail) {
  return {ProviderErrorKind::kAuth, std::move(detail)};
}

}  // namespace

Result<ServiceAccount> parse_service_account(std::string_view json) {
  boost::system::error_code error;
  const boost::json::value parsed = boost::json::parse(json, error);
  if (error || !parsed.is_object()) {
    return Error{Errc::kInvalidInput, "the service account's key file is not a JSON object"};
  }
  const boost::json::object& object = parsed.get_object();
  ServiceAccount account;
  std::string type;
  for (const auto& [name, field] : {std::pair{"type", &type},
                                    {"client_email", &account.client_email},
                                    {"private_key_id", &account.private_key_id},
                                    {"private_key", &account.private_key},
                                    {"token_uri", &account.token_uri}}) {
    if (!take_string(object, name, *field)) {
      return Error{Errc::kInvalidInput,
                   "the service account's key file: " + std::string(name) + " is not a string"};
    }
  }
  if (type != "service_account") {
    return Error{Errc::kInvalidInput,
                 "the key file is not of a service account (\"type\": \"service_account\")"};
  }
  for (const auto& [name, field] : {std::pair{"client_email", &account.client_email},
                                    {"private_key", &account.private_key},
                                    {"token_uri", &account.token_uri}}) {
    if (field->empty()) {
      return Error{Errc::kInvalidInput,
                   "the service account's key file has no " + std::string(name)};
    }
  }
  return account;
}

Result<std::string> sign_jwt(std::string_view header_json, std::string_view claims_json,
                             std::string_view private_key_pem) {
  TRY_ASSIGN(const Key key, read_key(private_key_pem));
  const std::string text =
      base64_encode(header_json, true) + "." + base64_encode(claims_json, true);
  TRY_ASSIGN(const std::string signature, rs256(key.get(), text));
  return text + "." + base64_encode(signature, true);
}

Result<std::string> make_assertion(const ServiceAccount& account, std::string_view scope,
                                   std::int64_t unix_seconds) {
  constexpr std::int64_t kValidSeconds = 3600;
  boost::json::object header = {{"alg", "RS256"}, {"typ", "JWT"}};
  if (!account.private_key_id.empty()) {
    header["kid"] = account.private_key_id;
  }
  const boost::json::object claims = {{"iss", account.client_email},
                                      {"scope", scope},
                                      {"aud", account.token_uri},
                                      {"iat", unix_seconds},
                                      {"exp", unix_seconds + kValidSeconds}};
  return sign_jwt(boost::json::serialize(header), boost::json::serialize(claims),
                  account.private_key);
}

GoogleTokenOptions google_token_options(const std::function<std::string(const std::string&)>& get) {
  GoogleTokenOptions options;
  options.token_file = get("CLOUDSDK_AUTH_ACCESS_TOKEN_FILE");
  options.key_file = get("GOOGLE_APPLICATION_CREDENTIALS");
  if (const std::string host = get("GCE_METADATA_HOST"); !host.empty()) {
    options.metadata_endpoint = fmt::format("http://{}", host);
  }
  return options;
}

GoogleTokens::GoogleTokens(GoogleTokenOptions options, HttpSender& sender,
                           std::function<std::int64_t()> unix_seconds,
                           std::shared_ptr<SharedGoogleToken> shared)
    : options_(std::move(options)),
      sender_(sender),
      unix_seconds_(std::move(unix_seconds)),
      shared_(shared != nullptr ? std::move(shared) : std::make_shared<SharedGoogleToken>()) {}

std::string GoogleTokens::source() const {
  return !options_.token_file.empty() ? "the token in " + options_.token_file
         : !options_.key_file.empty() ? "the service account's key in " + options_.key_file
                                      : "the metadata server";
}

Answer<std::string> GoogleTokens::from_file() const {
  Result<std::string> text = read_text_file(options_.token_file, kFileBytesMax);
  if (!text.ok()) {
    return no_token(text.error().detail);
  }
  std::string token = std::move(text).value();
  while (!token.empty() && static_cast<unsigned char>(token.back()) <= ' ') {
    token.pop_back();
  }
  if (token.empty() ||
      !std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; })) {
    return no_token(options_.token_file + " does not hold a token on one line");
  }
  return token;
}

Result<HttpRequest> GoogleTokens::key_request() const {
  TRY_ASSIGN(const std::string text, read_text_file(options_.key_file, kFileBytesMax));
  const Result<ServiceAccount> account = parse_service_account(text);
  if (!account.ok()) {
    return Error{Errc::kInvalidInput, options_.key_file + ": " + account.error().detail};
  }
  const Result<Url> url = parse_url(account.value().token_uri);
  const Result<std::string> assertion =
      make_assertion(account.value(), kScope, unix_seconds_() + clock_offset_);
  if (!url.ok() || !url.value().tls) {
    return Error{Errc::kInvalidInput, options_.key_file + ": token_uri is not an https:// address"};
  }
  if (!assertion.ok()) {
    return Error{Errc::kInvalidInput, options_.key_file + ": " + assertion.error().detail};
  }
  return HttpRequest{"POST",
                     url.value(),
                     {{"Content-Type", "application/x-www-form-urlencoded"}},
                     form_encode({{"grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"},
                                  {"assertion", assertion.value()}})};
}

Result<HttpRequest> GoogleTokens::metadata_request() const {
  TRY_ASSIGN(const Url url,
             parse_url(options_.metadata_endpoint +
                       "/computeMetadata/v1/instance/service-accounts/default/token"));
  return HttpRequest{"GET", url, {{"Metadata-Flavor", "Google"}}, ""};
}

Answer<std::string> GoogleTokens::take(const HttpResponse& answer) {
  if (answer.status != 200) {
    ProviderError error = by_status(
        answer.status, fmt::format("no access token from {}: HTTP {}", source(), answer.status));
    if (error.kind == ProviderErrorKind::kConfig) {
      error.kind = ProviderErrorKind::kAuth;  // 400: the statement was rejected
    }
    return error;
  }
  const Result<boost::json::object> object = parse_object(answer.body, "");
  std::string fresh = object.ok() ? text_of(object.value(), "access_token") : "";
  const boost::json::value* const lifetime =
      object.ok() ? object.value().if_contains("expires_in") : nullptr;
  if (fresh.empty() || lifetime == nullptr || !lifetime->is_int64()) {
    return ProviderError{ProviderErrorKind::kRate,
                         "the answer of " + source() + " is not an access token"};
  }
  shared_->put(fresh, unix_seconds_(), lifetime->get_int64());
  return fresh;
}

/// Google rejects a statement that is not valid at its own present time, with the same status as
/// one with a wrong signature. A difference of less than a minute is not the reason.
bool GoogleTokens::learn_time(const HttpResponse& answer) {
  constexpr std::int64_t kTolerated = 60;
  const std::optional<std::int64_t> theirs = answer.date();
  const std::int64_t ours = unix_seconds_();
  if (!theirs || std::llabs(*theirs - ours - clock_offset_) <= kTolerated) {
    return false;
  }
  clock_offset_ = *theirs - ours;
  return true;
}

Answer<std::string> GoogleTokens::token() {
  if (!options_.token_file.empty()) {
    return from_file();
  }
  if (std::optional<std::string> good = shared_->find(unix_seconds_())) {
    return *std::move(good);
  }
  // A metadata server is on this machine's own network: where there is one it answers at once.
  HttpLimits limits;
  const bool by_key = !options_.key_file.empty();
  limits.direct = !by_key;
  limits.connect_max = by_key ? seconds(5) : seconds(2);
  limits.answer_max = seconds(10);
  limits.body_bytes_max = kFileBytesMax;
  const Result<HttpRequest> usable = by_key ? key_request() : metadata_request();
  if (!usable.ok()) {
    return no_token(usable.error().detail);
  }
  const auto ask = [&] {
    return send_with_retries(sender_, limits,
                             [&] { return by_key ? key_request() : metadata_request(); });
  };
  Result<HttpResponse> answer = ask();
  if (answer.ok() && answer.value().status == 400 && by_key && learn_time(answer.value())) {
    answer = ask();
  }
  if (answer.ok()) {
    return take(answer.value());
  }
  ProviderError error = no_answer(answer.error());
  error.detail = fmt::format("no access token from {}: {}", source(), error.detail);
  if (!by_key && !shared_->has_had_key()) {
    error.kind = ProviderErrorKind::kAuth;  // probably this machine has no metadata server
  }
  return error;
}

}  // namespace mayfly::cloud_hooks
