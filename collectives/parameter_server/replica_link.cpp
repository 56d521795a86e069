#include "collectives/parameter_server/replica_link.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/log.hpp"
#include "base/net/sockets.hpp"

namespace mayfly::parameter_server {
namespace {}  // namespace

ReplicaLink::ReplicaLink(std::uint32_t shard, bool payload_hashes, GradientOf gradient_of,
                         OnTaken on_taken, OnUnreachable on_unreachable)
    : shard_(shard),
      payload_hashes_(payload_hashes),
      gradient_of_(std::move(gradient_of)),
      on_taken_(std::move(on_taken)),
      on_unreachable_(std::move(on_unreachable)),
      own_host_(collectives::this_host_id()) {}

Result<void> ReplicaLink::set_view(ViewId view, std::uint64_t key, const std::string& address) {
  Result<collectives::TcpAddress> parsed = collectives::parse_tcp_address(address);
  if (!parsed.ok()) {
    return std::move(parsed).error();
  }
  address_ = std::move(parsed).value();
  view_ = view;
  key_ = key;
  watch_.view_came(monotonic_now());
  return {};
}

short ReplicaLink::events() const {
  const bool sends = phase_ == LinkPhase::kConnecting || (stream_ && stream_->wants_to_send());
  const int reads = phase_ == LinkPhase::kConnecting ? 0 : POLLIN;
  return static_cast<short>(reads | (sends ? POLLOUT : 0));
}

std::optional<Instant> ReplicaLink::deadline() const {
  if (!address_) {
    return std::nullopt;
  }
  const bool waits = phase_ != LinkPhase::kReady || !entries_.empty();
  const std::optional<Instant> look = waits ? std::optional(watch_.next_look()) : std::nullopt;
  return phase_ == LinkPhase::kNone ? std::min(next_try_, *look) : look;
}

/// While something is not known to have been taken.
void ReplicaLink::look_after() {
  const bool is_ready = phase_ == LinkPhase::kReady;
  const bool waits = address_ && (!is_ready || !entries_.empty());
  if (waits && watch_.look(monotonic_now(), fd(), phase_) != LinkFault::kNone) {
    on_unreachable_();
  }
}

void ReplicaLink::connect() {
  next_try_ = monotonic_now() + kRetryInterval;
  const bool same_host =
      !address_->unix_name.empty() && address_->host_id == own_host_ && !own_host_.empty();
  Result<UniqueFd> fd = same_host ? start_connect_unix(address_->unix_name)
                                  : start_connect_tcp({address_->host, address_->port});
  if (fd.ok() && fd.value().valid()) {
    ask_while_idle(fd.value().get());  // it may only wait for what was taken
    stream_ = std::make_unique<MessageStream>(std::move(fd).value(), 0);
    phase_ = LinkPhase::kConnecting;
  }
}

void ReplicaLink::greet() {
  if (connection_error(stream_->fd()) != 0) {
    lose("cannot connect");
    return;
  }
  Header hello;
  hello.type = MessageType::kFollow;
  hello.shard = shard_;
  hello.view = value(view_);
  hello.key = key_;
  stream_->send(hello);
  phase_ = LinkPhase::kGreeting;
}

void ReplicaLink::lose(const std::string& why) {
  if (phase_ == LinkPhase::kReady) {
    log::info(fmt::format("shard {}: its follower: {}", shard_, why));
  }
  stream_.reset();
  phase_ = LinkPhase::kNone;
  next_try_ = monotonic_now() + kRetryInterval;
}

void ReplicaLink::put(const ReplicaEntry& entry) {
  const ByteSpan payload = entry.header.type == MessageType::kPush
                               ? gradient_of_(entry.header)
                               : std::as_bytes(std::span(entry.words));
  stream_->send(entry.header, payload, {}, payload_hashes_);
  bytes_out_ += kHeaderBytes + payload.size();
}

void ReplicaLink::send(ReplicaEntry entry) {
  entries_.push_back(std::move(entry));
  if (phase_ == LinkPhase::kReady) {
    put(entries_.back());
    (void)stream_->flush();  // a broken connection shows when it is read
  }
}

void ReplicaLink::serve(short events) {
  look_after();
  if (phase_ == LinkPhase::kNone && address_ && monotonic_now() >= next_try_) {
    connect();
    return;
  }
  if (phase_ == LinkPhase::kConnecting && events != 0) {
    greet();
  }
  if (stream_ && (events & (POLLIN | POLLHUP | POLLERR)) != 0) {
    const Result<void> received =
        stream_->receive([](const Header&) { return Result<PayloadTarget>(PayloadTarget{}); },
                         [this](const Header& header) { return handle(header); });
    if (!received.ok()) {
      lose(received.error().detail);
    }
  }
  if (stream_ && stream_->wants_to_send()) {
    if (const Result<void> sent = stream_->flush(); !sent.ok()) {
      lose(sent.error().detail);
    }
  }
}

Result<void> ReplicaLink::handle(const Header& header) {
  const bool greets = header.type == MessageType::kFollowing && phase_ == LinkPhase::kGreeting;
  const bool acknowledges = header.type == MessageType::kTaken && phase_ == LinkPhase::kReady;
  if (!greets && !acknowledges) {
    return Error{Errc::kCorrupt, "a message that followers do not send"};
  }
  TRY(on_taken_(header.entry));
  while (!entries_.empty() && entries_.front().header.entry <= header.entry) {
    entries_.pop_front();
  }
  if (greets) {
    phase_ = LinkPhase::kReady;
    watch_.ready(monotonic_now());
    for (const ReplicaEntry& entry : entries_) {
      put(entry);
    }
  }
  return {};
}

}  // namespace mayfly::parameter_server
