#include "collectives/parameter_server/shard_sessions.hpp"

#include <algorithm>
#include <utility>

namespace mayfly::parameter_server {

void ShardSessions::add(UniqueFd socket) {
  make_room();
  sessions_.push_back(std::make_unique<Session>(std::move(socket), context_));
}

/// Connections that are not authenticated must not keep a worker out.
void ShardSessions::make_room() {
  std::vector<Session*> strangers;
  for (const auto& session : sessions_) {
    if (session->is_stranger() && !session->is_over()) {
      strangers.push_back(session.get());
    }
  }
  if (strangers.size() >= kStrangersMax) {
    const auto silent = std::ranges::find_if(
        strangers, [](const Session* session) { return !session->is_greeted(); });
    (silent == strangers.end() ? strangers.front() : *silent)->end();
  }
}

void ShardSessions::end_late(Instant now) {
  for (const auto& session : sessions_) {
    if (session->is_stranger() && now >= session->stranger_until()) {
      session->end();
    }
  }
}

std::optional<Instant> ShardSessions::next_late() const {
  std::optional<Instant> next;
  for (const auto& session : sessions_) {
    if (session->is_stranger() && !session->is_over()) {
      next = std::min(next.value_or(session->stranger_until()), session->stranger_until());
    }
  }
  return next;
}

Session* ShardSessions::admit_next() {
  for (const auto& session : sessions_) {
    if (!session->is_greeted() || session->is_over()) {
      continue;
    }
    const Header& greeting = session->greeting();
    switch (admission_.judge(greeting)) {
      case AdmissionVerdict::kWait: break;
      case AdmissionVerdict::kRefuse: session->end(); break;
      case AdmissionVerdict::kAdmit:
        if (greeting.type == MessageType::kFollow) {
          end_leader();
          session->admit_leader();
        } else {
          if (Session* before = of(MemberId{greeting.worker})) {
            before->end();
          }
          session->admit_worker();
        }
        return session.get();
    }
  }
  return nullptr;
}

Session* ShardSessions::of(MemberId worker) const {
  const auto place = std::ranges::find_if(sessions_, [worker](const auto& session) {
    return session->is_worker() && session->worker() == worker && !session->is_over();
  });
  return place == sessions_.end() ? nullptr : place->get();
}

Session* ShardSessions::leader() const {
  const auto place = std::ranges::find_if(
      sessions_, [](const auto& session) { return session->is_leader() && !session->is_over(); });
  return place == sessions_.end() ? nullptr : place->get();
}

std::size_t ShardSessions::except_leader() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(sessions_, [](const auto& session) { return !session->is_leader(); }));
}

void ShardSessions::end_leader() {
  if (Session* session = leader()) {
    session->end();
  }
}

void ShardSessions::keep_copies() {
  for (const auto& session : sessions_) {
    session->keep_copies();
  }
}

void ShardSessions::release(std::uint64_t through) {
  for (const auto& session : sessions_) {
    session->release(through);
  }
}

void ShardSessions::flush() {
  for (const auto& session : sessions_) {
    session->flush();
  }
  std::erase_if(sessions_, [](const auto& session) { return session->is_over(); });
}

void ShardSessions::count(ShardFacts& facts) const {
  facts.bytes_in = context_.bytes_in;
  facts.bytes_out = context_.bytes_out;
  facts.bytes_shared = context_.bytes_shared;
  facts.bytes_sent = 0;
  for (const auto& session : sessions_) {
    facts.bytes_sent += session->bytes_sent();
  }
}

}  // namespace mayfly::parameter_server
