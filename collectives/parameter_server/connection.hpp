#pragma once

// A connection to a shard, from a worker or from the shard's leader: over a Unix-domain socket on
// the same host, if the system allows it, otherwise over TCP. It is made again when it breaks, and
// look() reports when it cannot be used although both sides are alive. One thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/time.hpp"
#include "collectives/parameter_server/message_stream.hpp"
#include "collectives/tcp/tcp_address.hpp"

namespace mayfly::parameter_server {

enum class ConnectionFault : std::uint8_t {
  kNone,
  kSlow,  ///< the other host answers, but its process does not; it still may
  kCut,   ///< the network delivers no answer
};

class ShardConnection {
 public:
  struct Handlers {
    /// The connection is made: the handler sends the greeting.
    std::function<void(MessageStream& stream)> greet;
    MessageStream::OnHeader on_header;
    MessageStream::OnMessage on_message;
    /// The connection broke or was closed.
    std::function<void(const std::string& why, bool was_ready)> on_lost;
  };

  /// `payload_max`: bytes of the largest payload that the shard sends.
  ShardConnection(std::uint64_t payload_max, Handlers handlers);

  /// The shard's address from now on; before the first call connect() does nothing. kInvalidInput
  /// if it is not an address.
  [[nodiscard]] Result<void> set_address(const std::string& address);
  /// A new view has begun. A fault is reported once per view, because the next view may not contain
  /// the other side.
  void on_view();
  /// The shard has sent kWelcome, or kFollowing.
  void welcomed();
  /// The connection is not needed yet, so its absence is no fault.
  void not_needed() { since_ = monotonic_now(); }

  [[nodiscard]] bool is_open() const { return stream_ != nullptr; }
  [[nodiscard]] bool is_ready() const { return phase_ == Phase::kReady; }
  [[nodiscard]] bool is_local() const { return is_local_; }
  /// Only while is_open().
  [[nodiscard]] MessageStream& stream() { return *stream_; }

  /// Begins to connect if there is an address, no connection, and it is time.
  void connect();
  /// When to call connect() again; nothing while there is a connection, or no address.
  [[nodiscard]] std::optional<Instant> next_try() const;
  /// For poll(): a descriptor (or -1) and events.
  [[nodiscard]] int fd() const { return stream_ != nullptr ? stream_->fd() : -1; }
  [[nodiscard]] short events() const;
  /// To be called after poll(): greets, receives and sends.
  void serve(short events);
  void close(const std::string& why);

  /// When to call look() next; look() returns the fault to report now.
  [[nodiscard]] Instant next_look() const;
  [[nodiscard]] ConnectionFault look();

 private:
  enum class Phase : std::uint8_t { kNone, kConnecting, kGreeting, kReady };

  const std::uint64_t payload_max_;
  const Handlers handlers_;
  const std::string own_host_;
  std::optional<collectives::TcpAddress> address_;
  Phase phase_ = Phase::kNone;
  bool is_local_ = false;  // over a Unix-domain socket
  std::unique_ptr<MessageStream> stream_;
  Instant next_try_;
  Instant since_;  // when it was last ready, or the view began
  Instant looked_;
  bool has_reported_ = true;  // before there is a view
};

}  // namespace mayfly::parameter_server
