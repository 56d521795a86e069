#pragma once

// Messages over one non-blocking socket: what is to be sent waits here until the socket takes it,
// and what arrives is put where the owner says. One thread.

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <span>
#include <utility>

#include "base/unique_fd.hpp"
#include "collectives/parameter_server/message.hpp"

namespace mayfly::parameter_server {

/// Where a payload goes: up to two runs, one after the other. Empty runs: it is thrown away.
using PayloadTarget = std::array<std::span<std::byte>, 2>;

class MessageStream {
 public:
  /// The most that one system call moves.
  static constexpr std::size_t kTransferMax = std::size_t{1} << 20;

  /// `spare`: memory for copies (see keep_copies), of the thread that uses this and other streams;
  /// the largest is left there for the next copy, since fresh memory costs more than copying. Null:
  /// always fresh.
  MessageStream(UniqueFd socket, std::uint64_t payload_max, Bytes* spare = nullptr)
      : socket_(std::move(socket)), payload_max_(payload_max), spare_(spare) {}

  [[nodiscard]] int fd() const { return socket_.get(); }
  /// Something waits for the socket; what waits for its release does not count.
  [[nodiscard]] bool wants_to_send() const {
    return !queue_.empty() && queue_.front().gate <= released_;
  }

  /// Queues a message; seals the header. The payload must stay unchanged until it is sent, unless
  /// keep_copies() is called before it changes; if the header names a slot it lies there, and only
  /// the header is sent. With a gate it, and what comes after it, waits for release().
  void send(Header header, ByteSpan first = {}, ByteSpan second = {}, bool with_hash = false,
            std::uint64_t gate = 0);
  /// Messages with gates up to this one may be sent from now on. Never goes back.
  void release(std::uint64_t through) { released_ = std::max(released_, through); }
  /// Moves what the socket takes. kPeerLost.
  [[nodiscard]] Result<void> flush();
  /// Copies what is not sent yet and not ours, so that its owner may change it.
  void keep_copies();

  /// Lets this descriptor go along with what is sent next (Unix-domain sockets). It stays the
  /// caller's, and open until then.
  void hand_over(int descriptor) { to_hand_over_ = descriptor; }
  /// What came along with a header, the newest; invalid: nothing.
  [[nodiscard]] UniqueFd take_descriptor() { return std::move(handed_over_); }

  /// Where the payload of this message goes; kCorrupt etc. ends the connection. If it lies in a
  /// slot, nowhere.
  using OnHeader = std::function<Result<PayloadTarget>(const Header&)>;
  /// A message is complete.
  using OnMessage = std::function<Result<void>(const Header&)>;
  /// One turn of reading: until the socket is empty, or for one transfer, so that other connections
  /// have their turn. Errors: kPeerLost, and what the handlers returned.
  [[nodiscard]] Result<void> receive(const OnHeader& on_header, const OnMessage& on_message);
  /// So much of a message of this type has come, without its header; 0 if none is under way.
  [[nodiscard]] std::uint64_t payload_got(MessageType type) const {
    return in_payload_ && header_.type == type ? payload_got_ : 0;
  }
  /// If a message of this type is under way, what is still to come of its payload is thrown away:
  /// nothing is written to its target any more.
  void discard(MessageType type) {
    if (in_payload_ && header_.type == type) {
      target_ = {};
    }
  }

 private:
  struct Part {
    ByteSpan bytes;
    Bytes own;  // bytes are in here, if there are any
    std::size_t sent = 0;
    std::uint64_t gate = 0;
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
