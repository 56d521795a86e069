#pragma once

// TLS 1.3 with a key from the job token instead of certificates: a peer that does not know the
// token can neither read nor change the data of a connection, nor repeat it on another one (RFC
// 8446, pre-shared key with an ephemeral exchange of keys; ADR 30).
//
// The rest of the program has one end of a pair of local sockets, and reads and writes plain bytes
// there. A thread of the process, "tls", transfers them to and from the network.

#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::elastic {

/// The status of one encrypted connection. Any thread.
class TlsLink {
 public:
  virtual ~TlsLink() = default;
  /// Waits until both sides have proved that they know the token. kRefused if they do not have the
  /// same one, kCorrupt if a client speaks no TLS, kPeerLost, kDeadline.
  [[nodiscard]] virtual Result<void> wait_until_open(Instant deadline) const = 0;
  /// The error that ended the connection; empty if there was none. An end of file is no error.
  [[nodiscard]] virtual std::string failure() const = 0;
  /// The peer's machine has acknowledged all of the first `bytes` bytes that were written.
  [[nodiscard]] virtual bool has_acknowledged(std::uint64_t bytes) const = 0;
  /// To be called before the owner closes its end: if the handshake is not over by then, the
  /// connection is closed at once, and nothing that was written is sent.
  virtual void abandon() const = 0;
};

/// The plain side of an encrypted connection. The descriptor does not block; closing it, or
/// shutting down its output, does the same to the connection after everything written has been
/// sent.
struct SecureSocket {
  UniqueFd fd;
  std::shared_ptr<const TlsLink> link;
};

/// Encrypts a connected socket as the side that connected, or as the side that accepted. Returns at
/// once; bytes that are written before the handshake is over are sent after it, if it is over
/// within ten seconds of the closing of the descriptor.
[[nodiscard]] SecureSocket secure_client(UniqueFd socket, ByteSpan token);
/// `farewell`: sent in plain text to a peer that sends nothing for kSilenceMax, because such a peer
/// does not know that it must use TLS; then the connection is closed.
[[nodiscard]] SecureSocket secure_server(UniqueFd socket, ByteSpan token, Bytes farewell = {});

inline constexpr Duration kSilenceMax = seconds(2);

}  // namespace mayfly::elastic
