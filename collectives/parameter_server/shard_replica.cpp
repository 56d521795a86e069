// The messages between the leader of a shard and its follower.

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
  if (core_.leases() != nullptr) {
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
  if (header.type == MessageType::kPush && header.count == 0) {
    return Error{Errc::kCorrupt, "a gradient of nothing"};
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
  while (const std::optional<Facts> facts = unsaid_.next(safe)) {
    if (const auto* update = std::get_if<UpdateFacts>(&*facts)) {
      listener_.on_update(*update);
    } else {
      listener_.on_rewound(std::get<RewindFacts>(*facts));
    }
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

ReplicaLink::ReplicaLink(std::uint32_t shard, bool payload_hashes, GradientOf gradient_of,
                         OnTaken on_taken, OnUnreachable on_unreachable)
    : shard_(shard),
      payload_hashes_(payload_hashes),
      gradient_of_(std::move(gradient_of)),
      on_taken_(std::move(on_taken)),
      on_unreachable_(std::move(on_unreachable)),
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
  connection_.view_came();
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
  const ByteSpan payload = entry.header.type == MessageType::kPush
                               ? gradient_of_(entry.header)
                               : std::as_bytes(std::span(entry.words));
  connection_.stream().send(entry.header, payload, {}, payload_hashes_);
  bytes_out_ += kHeaderBytes + payload.size();
}

void ReplicaLink::send(ReplicaEntry entry) {
  entries_.push_back(std::move(entry));
  if (connection_.is_ready()) {
    put(entries_.back());
    (void)connection_.stream().flush();  // a broken connection shows when it is read
  }
}

void ReplicaLink::serve(short events) {
  if (waits() && connection_.look() != ConnectionFault::kNone) {
    on_unreachable_();
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
  TRY(on_taken_(header.entry));
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
