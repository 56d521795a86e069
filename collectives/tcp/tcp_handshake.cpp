#include "collectives/tcp/tcp_handshake.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <bit>
#include <cstring>

#include "base/net/sockets.hpp"
#include "collectives/tcp/socket_channel.hpp"

namespace mayfly::collectives {

std::optional<Verdict> judge(const Hello& hello, const Hello& expected) {
  if (hello.view > expected.view) {
    return std::nullopt;
  }
  if (hello.view < expected.view) {
    return Verdict::kStaleView;
  }
  if (hello.key != expected.key) {
    return Verdict::kWrongKey;
  }
  const bool same_order = hello.from == expected.from && hello.to == expected.to;
  return same_order ? Verdict::kWelcome : Verdict::kWrongRank;
}

bool Incoming::receive() {
  if (received_ < raw_.size()) {
    const Moved got =
        receive_with_descriptor(fd_.get(), std::span(raw_).subspan(received_), handed_over_);
    if (got.closed) {
      return false;
    }
    received_ += got.bytes;
  }
  if (received_ < raw_.size()) {
    return true;
  }
  // A closed one has given up waiting for our answer.
  return hello()->magic == kHelloMagic && !at_end(fd_.get());
}

std::optional<Hello> Incoming::hello() const {
  if (received_ < raw_.size()) {
    return std::nullopt;
  }
  return std::bit_cast<Hello>(raw_);
}

bool Incoming::answer(Verdict verdict) {
  if (verdict == Verdict::kWelcome && handed_over_.valid()) {
    Result<ShmSegment> mapped = ShmSegment::map(handed_over_.get());
    if (mapped.ok()) {
      segment_ = std::move(mapped).value();
      verdict = Verdict::kWelcomeShared;
    }
    handed_over_ = {};
  }
  // Four bytes always fit into the buffer of a connection that has carried nothing yet.
  return send_some(fd_.get(), &verdict, sizeof verdict).bytes == sizeof verdict;
}

std::unique_ptr<Channel> Incoming::take_channel() {
  return segment_.valid() ? make_shm_channel(std::move(fd_), std::move(segment_), false)
                          : make_socket_channel(std::move(fd_));
}

Outgoing::Outgoing(UniqueFd fd, const Hello& hello, bool share_memory)
    : fd_(std::move(fd)), hello_(hello) {
  if (share_memory) {
    Result<ShmSegment> made = ShmSegment::create(to_hand_over_);
    if (made.ok()) {
      segment_ = std::move(made).value();
    }
  }
}

std::unique_ptr<Channel> Outgoing::take_channel() {
  return segment_.valid() ? make_shm_channel(std::move(fd_), std::move(segment_), true)
                          : make_socket_channel(std::move(fd_));
}

short Outgoing::events() const {
  return said_hello_ ? POLLIN : POLLOUT;
}

Result<bool> Outgoing::advance() {
  if (!said_hello_) {
    const int error = connection_error(fd_.get());
    if (error != 0) {
      return Error{Errc::kPeerLost, fmt::format("cannot connect: {}", std::strerror(error))};
    }
    const Moved sent =
        send_with_descriptor(fd_.get(), std::as_bytes(std::span(&hello_, 1)), to_hand_over_.get());
    to_hand_over_ = {};
    if (sent.bytes != sizeof hello_) {
      return Error{Errc::kPeerLost, "the new connection broke"};
    }
    said_hello_ = true;
    return false;
  }
  const Moved got = receive_some(fd_.get(), raw_.data() + received_, raw_.size() - received_);
  if (got.closed) {
    unanswered_ = true;
    return Error{Errc::kPeerLost, "the new connection was closed without an answer"};
  }
  received_ += got.bytes;
  if (received_ < raw_.size()) {
    return false;
  }
  return judged(std::bit_cast<Verdict>(raw_));
}

Result<bool> Outgoing::judged(Verdict verdict) {
  switch (verdict) {
    case Verdict::kWelcome: segment_ = {}; return true;
    case Verdict::kWelcomeShared:
      if (segment_.valid()) {
        return true;
      }
      break;
    case Verdict::kStaleView: return Error{Errc::kAborted, "a newer view is being formed"};
    case Verdict::kWrongKey: return Error{Errc::kRefused, "the other side has another key"};
    case Verdict::kWrongRank:
      return Error{Errc::kRefused, "the other side has another member order"};
  }
  return Error{Errc::kCorrupt, "the other side does not speak our protocol"};
}

}  // namespace mayfly::collectives
