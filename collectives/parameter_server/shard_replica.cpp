// What the leader of a shard and its follower say to each other.

#include <fmt/format.h>

#include <algorithm>

#include "base/log.hpp"
#include "collectives/parameter_server/shard_loop.hpp"

namespace mayfly::parameter_server {

/// A leader learns where its follower is, or that it has none any more: then nothing is kept back.
void ShardLoop::follow_up(const ShardView& view) {
  if (!log_.has_follower()) {
    return;
  }
  if (view.follower.empty()) {
    log_.alone();
    link_.reset();
    listener_.on_alone(core_.order().version());
    release();
    return;
  }
  follower_id_ = view.follower_id;
  if (Result<void> known = link_->set_view(view.view, view.key, view.follower); !known.ok()) {
    log::warning(fmt::format("shard {}: {}", options_.number, known.error().detail));
  }
}

/// From here on the old leader hears nothing from us, so it can tell nobody anything: what it was
/// told and we were not has never happened.
void ShardLoop::begin_to_lead() {
  for (const auto& session : sessions_) {
    session->over = session->over || session->is_leader;
  }
  role_ = ShardRole::kLeads;
  if (core_.desk() != nullptr) {
    set_stragglers({});  // it has measured nobody yet
  }
  listener_.on_lead(core_.order().version());
}

void ShardLoop::admit_leader(Session& session) {
  for (const auto& before : sessions_) {
    before->over = before->over || before->is_leader;
  }
  session.is_leader = true;
  Header answer;
  answer.type = MessageType::kFollowing;
  answer.shard = options_.number;
  answer.entry = followed_.taken();
  acknowledged_ = answer.entry;
  session.stream.send(answer);
}

ByteSpan ShardLoop::gradient_of(const Header& header) const {
  const auto kept = kept_.find(header.slice);
  const bool is_its = kept != kept_.end() && kept->second.entry == header.entry;
  return is_its ? std::as_bytes(kept->second.sum.span()) : ByteSpan{};
}

Result<PayloadTarget> ShardLoop::expect_entry(Session& session, const Header& header) {
  const std::uint64_t bytes = header.payload_bytes;
  if (header.slot != 0) {
    return Error{Errc::kCorrupt, "a slot that is not shared"};
  }
  if (header.type == MessageType::kPush && bytes == payload_bytes_) {
    if (session.space.own.size() == 0) {
      session.space = take_buffer();
    }
    return PayloadTarget{std::as_writable_bytes(session.space.own.span()), {}};
  }
  const bool has_words =
      header.type == MessageType::kRoster || header.type == MessageType::kStragglers;
  if (has_words && bytes <= kRosterBytesMax && bytes % sizeof(std::uint64_t) == 0) {
    session.words.resize(bytes / sizeof(std::uint64_t));
    return PayloadTarget{std::as_writable_bytes(std::span(session.words)), {}};
  }
  return bytes == 0 ? Result<PayloadTarget>(PayloadTarget{})
                    : Result<PayloadTarget>(Error{Errc::kCorrupt, "a message of the wrong size"});
}

Result<void> ShardLoop::take_entry(Session& session, const Header& header) {
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
  switch (followed_.judge(header.entry)) {
    case EntryVerdict::kRepeat: return {};
    case EntryVerdict::kGap: return Error{Errc::kCorrupt, "a leader that leaves something out"};
    case EntryVerdict::kNew: break;
  }
  const ShardEvent event = header.type == MessageType::kRoster       ? roster_of(session.words)
                           : header.type == MessageType::kStragglers ? stragglers_of(session.words)
                                                                     : event_of(header);
  if (header.type != MessageType::kPush) {
    return take(event, header, nullptr);
  }
  if (header.payload_bytes == 0) {  // the leader sends the gradient exactly if it has kept it
    session.space = PushedSum();
  }
  if (const Result<void> taken = take(event, header, &session.space); !taken.ok()) {
    return diverged(taken.error().detail);
  }
  return session.space.own.size() == 0
             ? Result<void>()
             : diverged("a slice is new to its leader and was there before");
}

Result<void> ShardLoop::diverged(const std::string& why) {
  listener_.on_diverged(why);
  return Error{Errc::kCorrupt, why};
}

/// Once for all that has come.
void ShardLoop::acknowledge() {
  if (followed_.taken() == acknowledged_) {
    return;
  }
  for (const auto& session : sessions_) {
    if (session->is_leader && !session->over) {
      acknowledged_ = followed_.taken();
      Header header;
      header.type = MessageType::kTaken;
      header.shard = options_.number;
      header.entry = acknowledged_;
      session->stream.send(header);
    }
  }
}

/// Lets go what has waited for the follower.
void ShardLoop::release() {
  const std::uint64_t safe = log_.safe();
  for (const auto& session : sessions_) {
    session->stream.release(safe);
  }
  while (!unsaid_.empty() && unsaid_.front().first <= safe) {
    if (const auto* update = std::get_if<UpdateFacts>(&unsaid_.front().second)) {
      listener_.on_update(*update);
    } else {
      listener_.on_rewound(std::get<RewindFacts>(unsaid_.front().second));
    }
    unsaid_.pop_front();
  }
  for (auto place = kept_.begin(); place != kept_.end();) {
    Kept& kept = place->second;
    if (kept.is_applied && kept.entry <= safe) {
      if (kept.sum.own.size() > 0) {
        spare_.push_back(std::move(kept.sum.own));
      }
      place = kept_.erase(place);
    } else {
      ++place;
    }
  }
}

}  // namespace mayfly::parameter_server
