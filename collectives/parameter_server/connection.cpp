#include "collectives/parameter_server/connection.hpp"

#include <poll.h>

#include <utility>

#include "base/net/sockets.hpp"
#include "base/try_assign.hpp"

namespace mayfly::parameter_server {
namespace {

constexpr Duration kRetryInterval = milliseconds(20);
constexpr Duration kPatience = seconds(5);  // also for a process that gets no processor time

}  // namespace

ShardConnection::ShardConnection(std::uint64_t payload_max, Handlers handlers)
    : payload_max_(payload_max),
      handlers_(std::move(handlers)),
      own_host_(collectives::this_host_id()) {}

Result<void> ShardConnection::set_address(const std::string& address) {
  TRY_ASSIGN(address_, collectives::parse_tcp_address(address));
  next_try_ = {};
  return {};
}

void ShardConnection::on_view() {
  since_ = monotonic_now();
  has_reported_ = false;
}

void ShardConnection::welcomed() {
  phase_ = Phase::kReady;
  since_ = monotonic_now();
}

void ShardConnection::connect() {
  if (phase_ != Phase::kNone || !address_ || monotonic_now() < next_try_) {
    return;
  }
  next_try_ = monotonic_now() + kRetryInterval;
  is_local_ = !address_->unix_name.empty() && address_->host_id == own_host_ && !own_host_.empty();
  Result<UniqueFd> fd = is_local_ ? start_connect_unix(address_->unix_name)
                                  : start_connect_tcp({address_->host, address_->port});
  if (is_local_ && !fd.ok() && fd.error().code == Errc::kUnreachable) {
    // The system forbids it, as SELinux does between containers with the host's network.
    is_local_ = false;
    fd = start_connect_tcp({address_->host, address_->port});
  }
  if (fd.ok() && fd.value().valid()) {
    ask_while_idle(fd.value().get());  // keep-alive: this side may only wait for data
    stream_ = std::make_unique<MessageStream>(std::move(fd).value(), payload_max_);
    phase_ = Phase::kConnecting;
  }
}

std::optional<Instant> ShardConnection::next_try() const {
  return phase_ == Phase::kNone && address_ ? std::optional(next_try_) : std::nullopt;
}

short ShardConnection::events() const {
  const bool is_connecting = phase_ == Phase::kConnecting;
  const bool sends = is_connecting || (stream_ != nullptr && stream_->wants_to_send());
  return static_cast<short>((is_connecting ? 0 : POLLIN) | (sends ? POLLOUT : 0));
}

void ShardConnection::serve(short events) {
  if (stream_ == nullptr || events == 0) {
    return;
  }
  if (phase_ == Phase::kConnecting) {
    if (connection_error(stream_->fd()) != 0) {
      close("cannot connect");
      return;
    }
    handlers_.greet(*stream_);
    phase_ = Phase::kGreeting;
  }
  Result<void> moved;
  if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) {
    moved = stream_->receive(handlers_.on_header, handlers_.on_message);
  }
  if (moved.ok() && stream_->wants_to_send()) {
    moved = stream_->flush();
  }
  if (!moved.ok()) {
    close(moved.error().detail);
  }
}

void ShardConnection::close(const std::string& why) {
  stream_.reset();
  next_try_ = monotonic_now() + kRetryInterval;
  const bool was_ready = std::exchange(phase_, Phase::kNone) == Phase::kReady;
  since_ = was_ready ? monotonic_now() : since_;  // not when it was made
  handlers_.on_lost(why, was_ready);
}

Instant ShardConnection::next_look() const {
  return looked_ + kReachInterval;
}

ConnectionFault ShardConnection::look() {
  const Instant now = monotonic_now();
  if (now < next_look()) {
    return ConnectionFault::kNone;
  }
  looked_ = now;
  const bool is_silent = stream_ != nullptr && is_unreachable(stream_->fd());
  const bool is_late = phase_ != Phase::kReady && now - since_ > kPatience;
  if (has_reported_ || !(is_silent || is_late)) {
    return ConnectionFault::kNone;
  }
  has_reported_ = true;
  const bool is_made = phase_ == Phase::kGreeting || phase_ == Phase::kReady;
  return is_silent || !is_made ? ConnectionFault::kCut : ConnectionFault::kSlow;
}

}  // namespace mayfly::parameter_server
