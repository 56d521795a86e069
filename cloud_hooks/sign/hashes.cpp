#include "cloud_hooks/sign/hashes.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include "base/check.hpp"

namespace mayfly::cloud_hooks {
namespace {

const unsigned char* data_of(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

std::string sha256(std::string_view bytes) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(data_of(bytes), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

std::string hmac_sha256(std::string_view key, std::string_view bytes) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  ENSURE(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), data_of(bytes), bytes.size(),
              reinterpret_cast<unsigned char*>(digest.data()), nullptr) != nullptr,
         "HMAC of memory has no way to fail");
  return digest;
}

std::string to_hex(std::string_view bytes) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += {kHex[byte >> 4], kHex[byte & 15]};
  }
  return text;
}

}  // namespace mayfly::cloud_hooks
