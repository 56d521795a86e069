#include "collectives/parameter_server/replica_link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/log.hpp"

namespace mayfly::parameter_server {

ReplicaLink::ReplicaLink(std::uint32_t shard, bool payload_hashes, Handlers handlers)
    : shard_(shard),
      payload_hashes_(payload_hashes),
      handlers_(std::move(handlers)),
      connection_(
          0, {.greet =
                  [this](MessageStream& stream) {
                    Header hello;
                    hello.type = MessageType::kFollow;
                    hello.shard = shard_;
                    hello.view = value(view_);
                    hello.key = key_;
                    stream.send(hello);
                  },
              .on_header = [](const Header&) { return Result<PayloadTarget>(PayloadTarget{}); },
              .on_message = [this](const Header& header) { return handle(header); },
              .on_lost =
                  [this](const std::string& why, bool was_ready) {
                    if (was_ready) {
                      log::info(fmt::format("shard {}: its follower: {}", shard_, why));
                    }
                  }}) {}

Result<void> ReplicaLink::set_view(ViewId view, std::uint64_t key, const std::string& address) {
  TRY(connection_.set_address(address));
  connection_.on_view();
  has_view_ = true;
  view_ = view;
  key_ = key;
  return {};
}

std::optional<Instant> ReplicaLink::deadline() const {
  if (!waits()) {
    return std::nullopt;
  }
  const Instant look = connection_.next_look();
  return std::min(connection_.next_try().value_or(look), look);
}

void ReplicaLink::put(const ReplicaEntry& entry) {
  const ByteSpan payload =
      entry.words.empty() ? entry.gradient : std::as_bytes(std::span(entry.words));
  connection_.stream().send(entry.header, payload, {}, payload_hashes_);
  bytes_out_ += kHeaderBytes + payload.size();
}

void ReplicaLink::send(ReplicaEntry entry) {
  entries_.push_back(std::move(entry));
  if (connection_.is_ready()) {
    put(entries_.back());
    (void)connection_.stream().flush();  // a broken connection is detected when it is read
  }
}

void ReplicaLink::serve(short events) {
  if (waits() && connection_.look() != ConnectionFault::kNone) {
    handlers_.on_unreachable();
  }
  connection_.serve(events);
  connection_.connect();
}

Result<void> ReplicaLink::handle(const Header& header) {
  const bool greets = header.type == MessageType::kFollowing && !connection_.is_ready();
  const bool acknowledges = header.type == MessageType::kTaken && connection_.is_ready();
  if (!greets && !acknowledges) {
    return Error{Errc::kCorrupt, "a message that followers do not send"};
  }
  TRY(handlers_.on_taken(header.entry));
  while (!entries_.empty() && entries_.front().header.entry <= header.entry) {
    entries_.pop_front();
  }
  if (greets) {
    connection_.welcomed();
    for (const ReplicaEntry& entry : entries_) {
      put(entry);
    }
  }
  return {};
}

}  // namespace mayfly::parameter_server
