#include "collectives/parameter_server/message_stream.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/net/sockets.hpp"
#include "base/try_assign.hpp"

namespace mayfly::parameter_server {
namespace {

constexpr std::size_t kWasteBytes = std::size_t{64} << 10;
constexpr std::size_t kPartsPerCall = 8;

Error lost() {
  return {Errc::kPeerLost, "the connection is closed"};
}

}  // namespace

void MessageStream::push_part(ByteSpan bytes, bool copy, std::uint64_t gate) {
  if (bytes.empty()) {
    return;
  }
  Part part;
  part.gate = gate;
  if (copy) {
    part.own.assign(bytes.begin(), bytes.end());
    part.bytes = part.own;
  } else {
    part.bytes = bytes;
  }
  queue_.push_back(std::move(part));  // moving a vector does not move its elements
}

void MessageStream::send(Header header, ByteSpan first, ByteSpan second, bool with_hash,
                         std::uint64_t gate) {
  header.payload_bytes = first.size() + second.size();
  if (with_hash && header.payload_bytes > 0) {
    header.payload_check = payload_hash(first, second);
  }
  seal(header);
  push_part(std::as_bytes(std::span(&header, 1)), true, gate);
  queue_.back().begins = header.type;
  if (header.slot == 0) {
    push_part(first, false, gate);
    push_part(second, false, gate);
  }
}

ssize_t MessageStream::send_parts(std::span<iovec> parts) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  attach_descriptor(message, control, to_hand_over_);
  const ssize_t sent = ::sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  to_hand_over_ = sent > 0 ? -1 : to_hand_over_;
  return sent;
}

/// Header and payload in one call: a fifth less CPU than one call for each.
Result<void> MessageStream::flush() {
  while (wants_to_send()) {
    std::array<iovec, kPartsPerCall> parts{};
    std::size_t count = 0;
    std::size_t bytes = 0;
    for (const Part& part : queue_) {
      if (count == kPartsPerCall || bytes == kTransferMax || part.gate > released_) {
        break;
      }
      const ByteSpan left = part.bytes.subspan(part.sent);
      const std::size_t size = std::min(left.size(), kTransferMax - bytes);
      parts[count++] = {.iov_base = const_cast<std::byte*>(left.data()), .iov_len = size};
      bytes += size;
    }
    const ssize_t sent = send_parts(std::span(parts).first(count));
    if (sent < 0) {
      const bool would_block = errno == EAGAIN || errno == EINTR || errno == ENOBUFS;
      return would_block ? Result<void>() : Result<void>(lost());
    }
    auto left = static_cast<std::size_t>(sent);
    bytes_sent_ += left;
    while (left > 0) {
      Part& part = queue_.front();
      const std::size_t step = std::min(left, part.bytes.size() - part.sent);
      part.sent += step;
      left -= step;
      if (part.sent == part.bytes.size()) {
        leave(part.own);
        queue_.pop_front();
      }
    }
  }
  return {};
}

void MessageStream::leave(Bytes& own) {
  if (spare_ != nullptr && own.capacity() > spare_->capacity()) {
    std::swap(own, *spare_);
  }
}

void MessageStream::keep_copies() {
  for (Part& part : queue_) {
    if (part.own.empty()) {
      if (spare_ != nullptr) {
        std::swap(part.own, *spare_);
      }
      part.own.assign(part.bytes.begin() + static_cast<std::ptrdiff_t>(part.sent),
                      part.bytes.end());
      part.bytes = part.own;
      part.sent = 0;
    }
  }
}

std::uint64_t MessageStream::withdraw(MessageType type) {
  std::deque<Part> kept;
  std::uint64_t bytes = 0;
  bool is_withdrawn = false;
  for (Part& part : queue_) {
    if (part.begins) {
      is_withdrawn = *part.begins == type && part.sent == 0;
    }
    if (!is_withdrawn) {
      kept.push_back(std::move(part));
    } else {
      bytes += part.bytes.size();
      leave(part.own);
    }
  }
  queue_ = std::move(kept);
  return bytes;
}

std::span<std::byte> MessageStream::next_space() {
  if (!in_payload_) {
    return std::as_writable_bytes(std::span(&header_, 1)).subspan(header_got_);
  }
  const std::uint64_t left = following_bytes() - payload_got_;
  if (target_[0].empty()) {
    waste_.resize(kWasteBytes);
    return std::span(waste_).first(std::min<std::uint64_t>(left, kWasteBytes));
  }
  const bool is_first = payload_got_ < target_[0].size();
  const std::span<std::byte> rest = is_first ? target_[0].subspan(payload_got_)
                                             : target_[1].subspan(payload_got_ - target_[0].size());
  return rest.first(std::min(rest.size(), kTransferMax));
}

/// False if there is nothing to read now.
Result<bool> MessageStream::receive_some_bytes() {
  const std::span<std::byte> space = next_space();
  const Moved moved = in_payload_ ? receive_some(fd(), space.data(), space.size())
                                  : receive_with_descriptor(fd(), space, handed_over_);
  if (moved.closed) {
    return lost();
  }
  (in_payload_ ? payload_got_ : header_got_) += moved.bytes;
  return moved.bytes > 0;
}

Result<void> MessageStream::finish_message(const OnMessage& on_message) {
  if (header_.payload_check != 0 && !target_[0].empty()) {
    const std::uint64_t hash = payload_hash(target_[0], target_[1]);
    if (hash != header_.payload_check) {
      return Error{Errc::kCorrupt, "a payload was damaged on its way"};
    }
  }
  in_payload_ = false;
  header_got_ = 0;
  payload_got_ = 0;
  const Header header = header_;
  return on_message(header);
}

Result<void> MessageStream::receive(const OnHeader& on_header, const OnMessage& on_message) {
  for (std::size_t moved = 0; moved < kTransferMax;) {
    const std::uint64_t before = in_payload_ ? payload_got_ : header_got_;
    TRY_ASSIGN(const bool any, receive_some_bytes());
    if (!any) {
      return {};
    }
    moved += (in_payload_ ? payload_got_ : header_got_) - before;
    if (!in_payload_ && header_got_ == kHeaderBytes) {
      TRY(check_header(header_, payload_max_));
      TRY_ASSIGN(target_, on_header(header_));
      const std::size_t room = target_[0].size() + target_[1].size();
      if (room > 0 && room != following_bytes()) {
        return Error{Errc::kCorrupt, "a payload of the wrong size"};
      }
      in_payload_ = true;
    }
    if (in_payload_ && payload_got_ == following_bytes()) {
      moved += header_.payload_bytes - following_bytes();  // counted as if it had arrived
      TRY(finish_message(on_message));
    }
  }
  return {};
}

}  // namespace mayfly::parameter_server
