#include "cloud_hooks/sign/service_account.hpp"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <boost/json.hpp>
#include <memory>

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

/// False if the field is there and not a string.
bool take_string(const boost::json::object& object, std::string_view name, std::string& into) {
  const boost::json::value* const value = object.if_contains(name);
  if (value != nullptr && value->is_string()) {
    into = std::string(value->get_string());
  }
  return value == nullptr || value->is_string();
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
                                    {"token_uri", &account.token_uri},
                                    {"project_id", &account.project_id}}) {
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
  const Result<Key> key = read_key(private_key_pem);
  if (!key.ok()) {
    return key.error();
  }
  const std::string text =
      base64_encode(header_json, true) + "." + base64_encode(claims_json, true);
  const Result<std::string> signature = rs256(key.value().get(), text);
  if (!signature.ok()) {
    return signature.error();
  }
  return text + "." + base64_encode(signature.value(), true);
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

}  // namespace mayfly::cloud_hooks
