#include "elastic/net/frame.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.hpp"
#include "base/net/sockets.hpp"
#include "base/try_assign.hpp"

namespace mayfly::elastic {
namespace {

constexpr std::size_t kReadBytes = 16u << 10;

}  // namespace

Bytes to_frame(const Message& message) {
  const Bytes body = encode(message);
  ENSURE(body.size() <= kMessageBytesMax, "our own messages must fit a frame");
  const auto length = static_cast<std::uint32_t>(body.size());
  Bytes frame(kFrameHeaderBytes + body.size());
  std::memcpy(frame.data(), &length, kFrameHeaderBytes);
  std::memcpy(frame.data() + kFrameHeaderBytes, body.data(), body.size());
  return frame;
}

Result<void> send_message(int fd, const Message& message, Instant deadline) {
  return send_exactly(fd, to_frame(message), deadline);
}

Result<Message> receive_message(int fd, Instant deadline) {
  std::uint32_t length = 0;
  TRY(receive_exactly(fd, std::as_writable_bytes(std::span(&length, 1)), deadline));
  if (length == 0 || length > kMessageBytesMax) {
    return Error{Errc::kCorrupt, "a frame of " + std::to_string(length) + " bytes"};
  }
  Bytes body(length);
  TRY(receive_exactly(fd, body, deadline));
  return decode(body);
}

std::size_t FrameReader::frame_bytes() const {
  std::uint32_t length = 0;
  std::memcpy(&length, buffer_.data() + begin_, kFrameHeaderBytes);
  return length;
}

std::span<std::byte> FrameReader::space() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  std::size_t wanted = end_ + kReadBytes;
  // next() has accepted the length of an incomplete frame, so memory for it can be allocated at
  // once.
  if (end_ >= kFrameHeaderBytes && frame_bytes() <= frame_bytes_max_) {
    wanted = std::max(wanted, kFrameHeaderBytes + frame_bytes());
  }
  if (buffer_.size() < wanted || buffer_.size() > 4 * wanted) {
    buffer_.resize(wanted);
    buffer_.shrink_to_fit();
  }
  return std::span(buffer_).subspan(end_);
}

void FrameReader::filled(std::size_t count) {
  ENSURE(count <= buffer_.size() - end_, "no more can be read than there is space for");
  end_ += count;
}

Result<std::optional<Message>> FrameReader::next() {
  if (end_ - begin_ < kFrameHeaderBytes) {
    return std::optional<Message>();
  }
  const std::size_t length = frame_bytes();
  if (length == 0 || length > frame_bytes_max_) {
    return Error{Errc::kCorrupt, "a frame of " + std::to_string(length) + " bytes, at most " +
                                     std::to_string(frame_bytes_max_) + " allowed"};
  }
  if (end_ - begin_ < kFrameHeaderBytes + length) {
    return std::optional<Message>();
  }
  const ByteSpan body = ByteSpan(buffer_).subspan(begin_ + kFrameHeaderBytes, length);
  begin_ += kFrameHeaderBytes + length;
  TRY_ASSIGN(Message message, decode(body));
  return std::optional<Message>(std::move(message));
}

}  // namespace mayfly::elastic
