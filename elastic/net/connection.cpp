#include "elastic/net/connection.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <utility>
#include <vector>

#include "base/asio/sockets.hpp"
#include "base/check.hpp"

namespace mayfly::elastic {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::seconds kFinishTimeout{2};

}  // namespace

Connection::Connection(boost::asio::io_context& io, UniqueFd fd, std::uint64_t id,
                       std::size_t frame_bytes_max, ConnectionOwner& owner,
                       std::shared_ptr<const TlsLink> tls)
    : socket_(io),
      finish_timer_(io),
      id_(id),
      owner_(owner),
      reader_(frame_bytes_max),
      tls_(std::move(tls)) {
  adopt(socket_, std::move(fd));
  error_code error;
  socket_.non_blocking(true, error);
}

void Connection::start() {
  read_more();
}

void Connection::read_more() {
  const std::span<std::byte> space = reader_.space();
  socket_.async_read_some(boost::asio::buffer(space.data(), space.size()),
                          [self = shared_from_this()](const error_code& error, std::size_t count) {
                            if (self->closed_) {
                              return;
                            }
                            if (error) {
                              self->close(self->reason_of(error));
                            } else {
                              self->handle_input(count);
                            }
                          });
}

void Connection::handle_input(std::size_t count) {
  if (!ignores_messages_) {
    reader_.filled(count);
  }
  while (!closed_ && !ignores_messages_) {
    Result<std::optional<Message>> next = reader_.next();
    if (!next.ok()) {
      close("malformed message: " + next.error().detail);
      return;
    }
    if (!next.value()) {
      break;
    }
    owner_.on_message(*this, *std::move(next).value());
  }
  if (!closed_) {
    read_more();
  }
}

void Connection::send(const Message& message) {
  send_frame(to_frame(message));
}

void Connection::send_frame(Bytes frame) {
  if (closed_ || finishing_) {
    return;
  }
  queue_.push_back(std::move(frame));
  queued_bytes_ += queue_.back().size();
  if (queued_bytes_ > kQueueBytesMax) {
    close("the peer does not read its messages");
  } else if (in_flight_.empty()) {
    write_more();
  }
}

void Connection::write_more() {
  in_flight_ = std::exchange(queue_, {});
  std::vector<boost::asio::const_buffer> buffers;
  buffers.reserve(in_flight_.size());
  for (const Bytes& frame : in_flight_) {
    buffers.emplace_back(frame.data(), frame.size());
  }
  boost::asio::async_write(
      socket_, std::move(buffers),
      [self = shared_from_this()](const error_code& error, std::size_t written) {
        if (self->closed_) {
          return;
        }
        if (error) {
          self->close(self->reason_of(error));
          return;
        }
        self->written_bytes_ += written;
        self->queued_bytes_ -= written;
        self->in_flight_.clear();
        if (!self->queue_.empty()) {
          self->write_more();
        } else if (self->finishing_) {
          self->end_output();
        }
      });
}

void Connection::finish(LateMessages late) {
  if (closed_ || finishing_) {
    return;
  }
  finishing_ = true;
  ignores_messages_ = late == LateMessages::kIgnored;
  finish_timer_.expires_after(kFinishTimeout);
  finish_timer_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error) {
      self->close("finished; the peer did not close");
    }
  });
  if (in_flight_.empty()) {
    end_output();
  }
}

void Connection::end_output() {
  error_code error;
  socket_.shutdown(tcp::socket::shutdown_send, error);
}

std::string Connection::reason_of(const error_code& error) const {
  const std::string failure = tls_ != nullptr ? tls_->failure() : "";
  return failure.empty() ? error.message() : failure;
}

bool Connection::everything_acknowledged() {
  if (closed_ || !queue_.empty() || !in_flight_.empty()) {
    return false;
  }
  if (tls_ != nullptr) {
    return tls_->has_acknowledged(written_bytes_);
  }
  int unacknowledged = 0;
  return ::ioctl(socket_.native_handle(), SIOCOUTQ, &unacknowledged) == 0 && unacknowledged == 0;
}

UniqueFd Connection::release() {
  ENSURE(!closed_, "a socket that is there is handed over");
  closed_ = true;
  finish_timer_.cancel();
  error_code error;
  const int fd = socket_.release(error);
  ENSURE(!error, "an open socket can be taken from its event loop");
  return UniqueFd(fd);
}

void Connection::close(const std::string& detail) {
  if (closed_) {
    return;
  }
  closed_ = true;
  finish_timer_.cancel();
  error_code error;
  socket_.close(error);
  // Posted, because the owner may be calling this connection right now.
  boost::asio::post(socket_.get_executor(),
                    [self = shared_from_this(), detail] { self->owner_.on_closed(*self, detail); });
}

}  // namespace mayfly::elastic
