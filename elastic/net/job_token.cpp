#include "elastic/net/job_token.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <span>
#include <string_view>

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/system_error.hpp"
#include "base/system_random.hpp"
#include "base/try_assign.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::elastic {
namespace {

const std::string kEncryptedPrefix = "tls-";
constexpr std::byte kEncryptedMark{1};

Bytes random_bytes(std::size_t size) {
  Bytes bytes(size);
  ENSURE(size <= 256, "getrandom() is atomic only up to 256 bytes");
  ssize_t got = -1;
  do {
    got = ::getrandom(bytes.data(), bytes.size(), 0);
  } while (got < 0 && errno == EINTR);
  ENSURE(got == static_cast<ssize_t>(size), "a job without random numbers has no secret");
  return bytes;
}

/// Writes the whole file or nothing: a truncated token would stop every later start of the job.
Result<void> write_private_file(const std::string& path, const std::string& text) {
  const std::string temporary = fmt::format("{}.tmp.{:016x}", path, system_random());
  const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    return system_error("cannot create " + path, errno);
  }
  if (::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::fsync(fd.get()) == 0 && ::rename(temporary.c_str(), path.c_str()) == 0) {
    return {};
  }
  const Error error = system_error("cannot write " + path, errno);
  ::unlink(temporary.c_str());
  return error;
}

/// Like ssh does for keys, rejects a file of this user that others can access. The mode of a file
/// that another user put here, as container platforms do with secrets, is not judged.
Result<void> check_closed_to_others(const std::string& path) {
  constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
  struct stat info {};
  const bool is_there = ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
  if (!is_there || info.st_uid != ::geteuid() || (info.st_mode & kOthers) == 0) {
    return {};
  }
  char mode[8];
  std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(info.st_mode & 07777));
  return Error{Errc::kInvalidInput, "token file " + path + " is open to others (mode " + mode +
                                        "), who could join or command the job: chmod 600 " + path};
}

const unsigned char* raw(ByteSpan bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

Bytes keyed_hash(ByteSpan key, ByteSpan text) {
  Bytes hash(kProofBytes);
  std::size_t size = 0;
  const unsigned char* done =
      EVP_Q_mac(nullptr, "HMAC", nullptr, "SHA256", nullptr, raw(key), key.size(), raw(text),
                text.size(), reinterpret_cast<unsigned char*>(hash.data()), hash.size(), &size);
  ENSURE(done != nullptr && size == kProofBytes, "OpenSSL has HMAC-SHA256");
  return hash;
}

}  // namespace

Bytes make_token(bool is_encrypted) {
  Bytes token = random_bytes(kTokenBytes);
  if (is_encrypted) {
    token.push_back(kEncryptedMark);
  }
  return token;
}
bool is_encrypted(ByteSpan token) {
  return token.size() == kTokenBytes + 1;
}
Bytes tls_key(ByteSpan token) {
  constexpr std::string_view kPurpose = "mayfly tls 1.3 pre-shared key";
  return keyed_hash(token, std::as_bytes(std::span(kPurpose)));
}
std::string token_to_text(ByteSpan token) {
  ENSURE(token.size() == kTokenBytes || is_encrypted(token), "a token has one of two sizes");
  return (is_encrypted(token) ? kEncryptedPrefix : "") + to_hex(token.first(kTokenBytes));
}
Bytes make_nonce() {
  return random_bytes(kNonceBytes);
}

Result<Bytes> read_token_file(const std::string& path) {
  TRY(check_closed_to_others(path));
  TRY_ASSIGN(std::string text, read_text_file(path, 4096));
  const bool is_encrypted = text.starts_with(kEncryptedPrefix);
  text.erase(0, is_encrypted ? kEncryptedPrefix.size() : 0);
  text.erase(text.find_last_not_of("\r\n \t") + 1);
  std::optional<Bytes> token = from_hex(text);
  if (!token || token->size() != kTokenBytes) {
    return Error{Errc::kCorrupt, path + " is not a job token (64 hexadecimal digits, after \"" +
                                     kEncryptedPrefix + "\" or nothing)"};
  }
  if (is_encrypted) {
    token->push_back(kEncryptedMark);
  }
  return *std::move(token);
}

Result<void> write_token_file(const std::string& path, ByteSpan token) {
  return write_private_file(path, token_to_text(token) + "\n");
}

Bytes make_proof(ByteSpan token, ByteSpan challenge_nonce, ByteSpan own_nonce, Role role) {
  ENSURE(challenge_nonce.size() == kNonceBytes && own_nonce.size() == kNonceBytes,
         "with nonces of one size the hashed text has one meaning");
  Bytes text(challenge_nonce.begin(), challenge_nonce.end());
  text.insert(text.end(), own_nonce.begin(), own_nonce.end());
  text.push_back(static_cast<std::byte>(role));
  return keyed_hash(token, text);
}

void prepare_proofs() {
  const Bytes zeros(kNonceBytes);
  (void)make_proof(Bytes(kTokenBytes), zeros, zeros, Role::kSentinel);
}

bool proof_holds(ByteSpan token, ByteSpan challenge_nonce, const Hello& hello) {
  if (hello.nonce.size() != kNonceBytes || hello.proof.size() != kProofBytes) {
    return false;
  }
  const Bytes expected = make_proof(token, challenge_nonce, hello.nonce, hello.role);
  return CRYPTO_memcmp(expected.data(), hello.proof.data(), kProofBytes) == 0;
}

}  // namespace mayfly::elastic
