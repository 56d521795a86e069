#pragma once

// Messages over one non-blocking socket: messages to send are queued here until the socket accepts
// them, and payloads that arrive are written to memory that the owner chooses. One thread.

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "base/unique_fd.hpp"
#include "collectives/parameter_server/message.hpp"

namespace mayfly::parameter_server {

/// Memory for a payload: up to two ranges, one after the other. Empty ranges: the payload is
/// discarded.
using PayloadTarget = std::array<std::span<std::byte>, 2>;

class MessageStream {
 public:
  /// Most bytes that one system call transfers.
  static constexpr std::size_t kTransferMax = std::size_t{1} << 20;

  /// `spare`: memory for copies (see keep_copies), shared by the streams of one thread. The largest
  /// buffer is kept there for the next copy, because allocating memory costs more than copying.
  /// Null: memory is allocated for each copy.
  MessageStream(UniqueFd socket, std::uint64_t payload_max, Bytes* spare = nullptr)
      : socket_(std::move(socket)), payload_max_(payload_max), spare_(spare) {}

  [[nodiscard]] int fd() const { return socket_.get(); }
  /// True if a message waits for the socket; those that wait for release() do not count.
  [[nodiscard]] bool wants_to_send() const {
    return !queue_.empty() && queue_.front().gate <= released_;
  }

  /// Queues a message; seals the header. The payload must stay unchanged until it is sent, unless
  /// keep_copies() is called before it changes. If the header names a slot, the payload is there
  /// and only the header is sent. With a gate the message, and all later ones, wait for release().
  void send(Header header, ByteSpan first = {}, ByteSpan second = {}, bool with_hash = false,
            std::uint64_t gate = 0);
  /// Messages with gates up to this one may be sent from now on. Never goes back.
  void release(std::uint64_t through) { released_ = std::max(released_, through); }
  /// Sends as much as the socket accepts. kPeerLost.
  [[nodiscard]] Result<void> flush();
  /// The bytes that the socket has accepted so far.
  [[nodiscard]] std::uint64_t bytes_sent() const { return bytes_sent_; }
  /// Copies payloads that are not sent yet, so that their owners may change them.
  void keep_copies();
  /// Removes the messages of this type of which nothing has been sent yet; returns their bytes.
  std::uint64_t withdraw(MessageType type);

  /// Sends this descriptor with the next bytes (Unix-domain sockets only). The caller keeps it, and
  /// must not close it before.
  void hand_over(int descriptor) { to_hand_over_ = descriptor; }
  /// The newest descriptor that arrived with a header; invalid if none arrived.
  [[nodiscard]] UniqueFd take_descriptor() { return std::move(handed_over_); }

  /// Returns the memory for the payload of this message, or an error, which ends the connection.
  /// The result is not used if the payload is in a slot.
  using OnHeader = std::function<Result<PayloadTarget>(const Header&)>;
  /// A message is complete.
  using OnMessage = std::function<Result<void>(const Header&)>;
  /// Reads until the socket is empty, or for one transfer, so that other connections are served,
  /// too. Errors: kPeerLost, and those that the handlers return.
  [[nodiscard]] Result<void> receive(const OnHeader& on_header, const OnMessage& on_message);
  /// Bytes of the payload of a message of this type that have arrived; 0 if none is being received.
  [[nodiscard]] std::uint64_t payload_got(MessageType type) const {
    return in_payload_ && header_.type == type ? payload_got_ : 0;
  }
  /// If a message of this type is being received, the rest of its payload is discarded: nothing is
  /// written to its target any more.
  void discard(MessageType type) {
    if (in_payload_ && header_.type == type) {
      target_ = {};
    }
  }

 private:
  struct Part {
    ByteSpan bytes;
    Bytes own;  // memory of `bytes`, if the bytes were copied
    std::size_t sent = 0;
    std::uint64_t gate = 0;
    std::optional<MessageType> begins{};  // type of the message, if this is a header
  };
  void push_part(ByteSpan bytes, bool copy, std::uint64_t gate);
  [[nodiscard]] ssize_t send_parts(std::span<iovec> parts);
  /// The bytes of the present message that follow its header.
  [[nodiscard]] std::uint64_t following_bytes() const {
    return header_.slot == 0 ? header_.payload_bytes : 0;
  }
  [[nodiscard]] std::span<std::byte> next_space();
  [[nodiscard]] Result<bool> receive_some_bytes();
  [[nodiscard]] Result<void> finish_message(const OnMessage& on_message);

  void leave(Bytes& own);

  UniqueFd socket_;
  std::uint64_t payload_max_;
  Bytes* spare_;
  std::deque<Part> queue_;
  std::uint64_t released_ = 0;
  std::uint64_t bytes_sent_ = 0;
  int to_hand_over_ = -1;
  UniqueFd handed_over_;
  Header header_;
  std::size_t header_got_ = 0;
  bool in_payload_ = false;
  std::uint64_t payload_got_ = 0;
  PayloadTarget target_{};
  Bytes waste_;
};

}  // namespace mayfly::parameter_server
