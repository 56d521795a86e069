#pragma once

// The job token: a secret shared by all processes and users that may join or command a job. It is
// never sent; a client proves that it knows the token by an HMAC over the coordinator's challenge.
//
// A token also determines whether the job's connections are encrypted. If they are, its text begins
// with "tls-", and it has one byte more in memory. So an attacker cannot make an owner of the token
// use unencrypted connections.

#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "elastic/core/messages.hpp"

namespace mayfly::elastic {

inline constexpr std::size_t kTokenBytes = 32;
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kProofBytes = 32;

/// kTokenBytes bytes from the kernel's random source, and one byte more if connections are
/// encrypted.
[[nodiscard]] Bytes make_token(bool is_encrypted = false);
/// Whether the owners of this token encrypt their connections.
[[nodiscard]] bool is_encrypted(ByteSpan token);
/// The pre-shared key for TLS, derived from a token (HMAC-SHA256). Proofs use another key.
[[nodiscard]] Bytes tls_key(ByteSpan token);
/// The text of a token file, without the end of the line.
[[nodiscard]] std::string token_to_text(ByteSpan token);
/// kNonceBytes bytes from the kernel's random source.
[[nodiscard]] Bytes make_nonce();

/// Reads a token written by write_token_file. kCorrupt if the file is not one (64 hexadecimal
/// digits, perhaps after "tls-"), kInvalidInput if this user owns it and its mode lets the group or
/// others read, write or execute it.
[[nodiscard]] Result<Bytes> read_token_file(const std::string& path);
/// Writes the token as text that only the owner may read, replacing `path` atomically.
[[nodiscard]] Result<void> write_token_file(const std::string& path, ByteSpan token);

/// HMAC-SHA256 over both nonces and the role, so that a proof cannot be replayed for another
/// session or for more rights.
[[nodiscard]] Bytes make_proof(ByteSpan token, ByteSpan challenge_nonce, ByteSpan own_nonce,
                               Role role);
/// Makes OpenSSL do its one-time work for proofs now, before a fork: reading its configuration file
/// and finding its algorithms. Then the child opens no file for that.
void prepare_proofs();
/// True if `hello` answers the challenge with the right token. The time does not depend on the
/// proof.
[[nodiscard]] bool proof_holds(ByteSpan token, ByteSpan challenge_nonce, const Hello& hello);

}  // namespace mayfly::elastic
