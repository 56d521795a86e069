#include "collectives/parameter_server/followed_leader.hpp"

#include <span>
#include <utility>

namespace mayfly::parameter_server {

Result<PayloadTarget> FollowedLeader::expect(const Header& header, PushedGradients& gradients) {
  const std::uint64_t bytes = header.payload_bytes;
  if (header.slot != 0) {
    return Error{Errc::kCorrupt, "a slot that is not shared"};
  }
  if (header.type == MessageType::kPush && header.count == 0) {
    return Error{Errc::kCorrupt, "an empty gradient"};
  }
  if (header.type == MessageType::kPush && bytes == payload_bytes_) {
    if (space_.own.size() == 0) {
      space_ = gradients.space();
    }
    return PayloadTarget{std::as_writable_bytes(space_.own.span()), {}};
  }
  const bool has_words =
      header.type == MessageType::kRoster || header.type == MessageType::kStragglers;
  if (has_words && bytes <= kRosterBytesMax && bytes % sizeof(std::uint64_t) == 0) {
    words_.resize(bytes / sizeof(std::uint64_t));
    return PayloadTarget{std::as_writable_bytes(std::span(words_)), {}};
  }
  return bytes == 0 ? Result<PayloadTarget>(PayloadTarget{})
                    : Result<PayloadTarget>(Error{Errc::kCorrupt, "a message of the wrong size"});
}

Result<std::optional<FollowedLeader::Entry>> FollowedLeader::take(const Header& header) {
  switch (header.type) {
    case MessageType::kHello:
    case MessageType::kPush:
    case MessageType::kPull:
    case MessageType::kRest:
    case MessageType::kRoster:
    case MessageType::kStragglers:
    case MessageType::kHold: break;
    default: return Error{Errc::kCorrupt, "a message that leaders do not send"};
  }
  switch (log_.judge(header.entry)) {
    case EntryVerdict::kRepeat: return std::optional<Entry>();
    case EntryVerdict::kGap: return Error{Errc::kCorrupt, "a gap in the leader's entries"};
    case EntryVerdict::kNew: break;
  }
  Entry entry;
  switch (header.type) {
    case MessageType::kRoster: entry.event = roster_of(words_); break;
    case MessageType::kStragglers: entry.event = stragglers_of(words_); break;
    default: entry.event = event_of(header);
  }
  if (header.type == MessageType::kPush && header.payload_bytes > 0) {
    entry.gradient = std::exchange(space_, PushedSum());
  }
  return std::optional(std::move(entry));
}

Header FollowedLeader::message(MessageType type) {
  acknowledged_ = log_.taken();
  Header header;
  header.type = type;
  header.shard = shard_;
  header.entry = acknowledged_;
  return header;
}

Header FollowedLeader::welcome() {
  return message(MessageType::kFollowing);
}

std::optional<Header> FollowedLeader::acknowledgement() {
  return log_.taken() == acknowledged_ ? std::nullopt : std::optional(message(MessageType::kTaken));
}

}  // namespace mayfly::parameter_server
