#pragma once

// A control connection on an io_context that one thread runs. Private to elastic/net (it shows
// Asio).

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "base/unique_fd.hpp"
#include "elastic/core/messages.hpp"
#include "elastic/net/frame.hpp"
#include "elastic/net/tls_link.hpp"

namespace mayfly::elastic {

/// How long the owner of connections that ends waits until all of them are finished: longer than
/// finish() itself.
inline constexpr auto kFlushTimeout = std::chrono::milliseconds(2500);

class Connection;

/// Receives the events of a connection. Called from the io_context only, never from inside a call
/// to the connection.
class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  virtual void on_message(Connection& connection, Message message) = 0;
  /// The last call, made once. `detail` is the cause: end of file, an error, a malformed frame, or
  /// this side's finish().
  virtual void on_closed(Connection& connection, const std::string& detail) = 0;
};

/// Shared by its owner and by the operations that Asio has in flight, which outlive close().
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  /// Takes over a connected socket. `owner` must outlive the io_context's run. `tls`: the status of
  /// the encrypted connection behind the socket, if it is encrypted.
  Connection(boost::asio::io_context& io, UniqueFd fd, std::uint64_t id,
             std::size_t frame_bytes_max, ConnectionOwner& owner,
             std::shared_ptr<const TlsLink> tls = nullptr);

  /// The number by which the owner identifies the connection.
  [[nodiscard]] std::uint64_t id() const { return id_; }

  /// Starts reading.
  void start();
  /// Queues a message. If more than kQueueBytesMax are queued, the connection is closed.
  void send(const Message& message);
  /// The same for a message that is encoded already (to_frame).
  void send_frame(Bytes frame);
  /// The peer's machine has acknowledged every byte sent. Its processes may not have read them.
  [[nodiscard]] bool everything_acknowledged();
  void set_frame_limit(std::size_t frame_bytes_max) { reader_.set_limit(frame_bytes_max); }
  /// Whether messages that arrive after finish() are passed to the owner (kDelivered).
  enum class LateMessages { kIgnored, kDelivered };
  /// Sends all queued messages, then an end of file, and waits up to two seconds for the peer to
  /// close its side, too: closing at once would reset the connection and could destroy the last
  /// messages.
  void finish(LateMessages late = LateMessages::kIgnored);
  /// Ends this object without a call to the owner, and returns the socket. No message may be queued
  /// or in transit in either direction.
  [[nodiscard]] UniqueFd release();
  /// Closes now.
  void close(const std::string& detail);

  static constexpr std::size_t kQueueBytesMax = 64u << 20;

 private:
  void read_more();
  void handle_input(std::size_t count);
  void write_more();
  void end_output();
  /// A readable reason for an error of the socket.
  [[nodiscard]] std::string reason_of(const boost::system::error_code& error) const;

  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer finish_timer_;
  std::uint64_t id_;
  ConnectionOwner& owner_;
  FrameReader reader_;
  std::deque<Bytes> queue_;      // frames not yet handed to Asio
  std::deque<Bytes> in_flight_;  // frames Asio is writing
  std::size_t queued_bytes_ = 0;
  std::uint64_t written_bytes_ = 0;
  const std::shared_ptr<const TlsLink> tls_;  // null: not encrypted
  bool finishing_ = false;
  bool ignores_messages_ = false;  // those that arrive after finish()
  bool closed_ = false;
};

}  // namespace mayfly::elastic
