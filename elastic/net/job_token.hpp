#pragma once

// The job token: a secret shared by all processes and users that may join or command a job. It
// never crosses the wire; a client proves that it knows it by an HMAC over the coordinator's
// challenge.
//
// A token also says whether the job's connections are encrypted: then its text begins with "tls-"
// and it has one byte more in memory. So no owner of the token can be made to use plain
// connections.

#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "elastic/core/messages.hpp"

namespace mayfly::elastic {

inline constexpr std::size_t kTokenBytes = 32;
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kProofBytes = 32;

/// kTokenBytes bytes from the kernel's random source, and the mark if connections are encrypted.
[[nodiscard]] Bytes make_token(bool is_encrypted = false);
/// Whether the owners of this token encrypt their connections.
[[nodiscard]] bool is_encrypted(ByteSpan token);
/// The key for TLS that follows from a token (HMAC-SHA256): not the one that proofs are made with.
[[nodiscard]] Bytes tls_key(ByteSpan token);
/// What stands in a token file, without the end of the line.
[[nodiscard]] std::string token_to_text(ByteSpan token);
/// kNonceBytes bytes from the kernel's random source.
[[nodiscard]] Bytes make_nonce();

/// Reads a token written by write_token_file. kCorrupt if the file is not one (64 hexadecimal
/// digits, after "tls-" or nothing), kInvalidInput if it is ours and its group or others may do
/// anything with it.
[[nodiscard]] Result<Bytes> read_token_file(const std::string& path);
/// Writes the token as text that only the owner may read, replacing `path` atomically.
[[nodiscard]] Result<void> write_token_file(const std::string& path, ByteSpan token);

/// HMAC-SHA256 over both nonces and the role, so that a proof cannot be replayed for another
/// session or for more rights.
[[nodiscard]] Bytes make_proof(ByteSpan token, ByteSpan challenge_nonce, ByteSpan own_nonce,
                               Role role);
/// Lets OpenSSL do now, before a fork, what it does once in a process that makes proofs: read its
/// configuration file, find its algorithms. The child then shares all that and opens no file.
void prepare_proofs();
/// True if `hello` answers the challenge with the right token. Constant time in the proof.
[[nodiscard]] bool proof_holds(ByteSpan token, ByteSpan challenge_nonce, const Hello& hello);

}  // namespace mayfly::elastic
