#pragma once

// Frames on a control connection: a 32-bit little-endian length, then one encoded Message.

#include <cstddef>
#include <optional>
#include <span>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "elastic/core/messages.hpp"

namespace mayfly::elastic {

inline constexpr std::size_t kFrameHeaderBytes = 4;
/// Bound on a frame until the sender has proved that it knows the job token.
inline constexpr std::size_t kUnauthenticatedFrameBytesMax = 64u << 10;

/// The message with its length in front, ready to be written.
[[nodiscard]] Bytes to_frame(const Message& message);

/// Sends one message; waits while the peer does not read. kPeerLost, kDeadline.
[[nodiscard]] Result<void> send_message(int fd, const Message& message, Instant deadline);
/// Receives one message and not a byte more. kPeerLost, kDeadline, kCorrupt.
[[nodiscard]] Result<Message> receive_message(int fd, Instant deadline);

/// Splits a stream of bytes into messages. Memory is bounded by the present frame limit plus one
/// read. To use it, read into space(), call filled(), then call next() until it returns nothing.
/// One thread.
class FrameReader {
 public:
  explicit FrameReader(std::size_t frame_bytes_max) : frame_bytes_max_(frame_bytes_max) {}

  /// A new limit for the frames that follow.
  void set_limit(std::size_t frame_bytes_max) { frame_bytes_max_ = frame_bytes_max; }

  /// Where to read the next bytes to; never empty. Valid until the next call of any function.
  [[nodiscard]] std::span<std::byte> space();
  /// `count` bytes were read into space().
  void filled(std::size_t count);
  /// The next complete message; nothing if more bytes are needed; kCorrupt if the frame is empty,
  /// too long or not a message. After an error the position in the stream is lost: close it.
  [[nodiscard]] Result<std::optional<Message>> next();

 private:
  [[nodiscard]] std::size_t frame_bytes() const;

  std::size_t frame_bytes_max_;
  Bytes buffer_;  // storage; bytes [begin_, end_) are unread
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace mayfly::elastic
