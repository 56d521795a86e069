#include "elastic/net/control_sessions.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.hpp"
#include "base/log.hpp"
#include "elastic/net/handshake.hpp"
#include "elastic/net/job_token.hpp"
#include "elastic/net/tls_link.hpp"

namespace mayfly::elastic {
namespace {

using boost::system::error_code;

constexpr Duration kHandshakeTimeout = seconds(5);
constexpr Duration kSweepInterval = milliseconds(100);
constexpr Duration kOperatorIdleMax = seconds(30);
constexpr std::size_t kUnauthenticatedMax = 256;

/// Explains to the user why a job does not begin: its workers cannot connect.
std::string full_text(int number) {
  std::string text =
      std::string("no worker or command can connect any more: ") + std::strerror(number);
  rlimit most{};
  if (number == EMFILE && ::getrlimit(RLIMIT_NOFILE, &most) == 0) {
    text += ", the limit is " + std::to_string(most.rlim_cur) +
            "; raise it with ulimit -n, or use fewer workers";
  }
  return text;
}

/// The answer to a peer that does not use TLS although this job's connections are encrypted.
Bytes needs_tls() {
  return to_frame(Refused{
      "wrong token: this job's connections are encrypted; use the coordinator's own token file, "
      "whose text begins with \"tls-\""});
}

}  // namespace

ControlSessions::ControlSessions(boost::asio::io_context& io, UniqueFd listener, Bytes token,
                                 SessionOwner& owner)
    : io_(io),
      flush_timer_(io),
      token_(std::move(token)),
      owner_(owner),
      accept_loop_(
          io, std::move(listener), rejection_log_, [this](UniqueFd fd) { greet(std::move(fd)); },
          [this](int error) { report_full(error); }) {}

void ControlSessions::shut_down(std::function<void()> on_empty) {
  on_empty_ = std::move(on_empty);
  accept_loop_.stop();
  for (auto& [id, session] : sessions_) {
    session.connection->finish();
  }
  if (sessions_.empty()) {
    on_empty_();
    return;
  }
  flush_timer_.expires_after(kFlushTimeout);
  flush_timer_.async_wait([this](const error_code&) { on_empty_(); });
}

void ControlSessions::report_full(int error) {
  if (!std::exchange(full_reported_, true)) {
    log::warning(full_text(error));
  }
}

void ControlSessions::greet(UniqueFd fd) {
  if (unauthenticated_ >= kUnauthenticatedMax) {
    drop_oldest_unauthenticated();
  }
  Held session;
  session.id = next_id_++;
  session.who = peer_name(fd.get());
  session.place.host = host_of_peer(fd.get());
  std::shared_ptr<const TlsLink> tls;
  if (is_encrypted(token_)) {
    SecureSocket secured = secure_server(std::move(fd), token_, needs_tls());
    if (!secured.fd.valid()) {
      return rejection_log_.turned_away(session.who, "no descriptors are left");
    }
    fd = std::move(secured.fd);
    session.tls = tls = std::move(secured.link);
  }
  session.connection = std::make_shared<Connection>(
      io_, std::move(fd), session.id, kUnauthenticatedFrameBytesMax, *this, std::move(tls));
  session.nonce = make_nonce();
  session.deadline = monotonic_now() + kHandshakeTimeout;
  session.connection->start();
  session.connection->send(Challenge{session.nonce});
  sessions_.emplace(session.id, std::move(session));
  ++unauthenticated_;
}

/// A flood of unauthenticated connections must neither use up the descriptors of this process nor
/// keep other clients from connecting. A handshake takes a millisecond, so the connection that has
/// waited longest is closed.
void ControlSessions::drop_oldest_unauthenticated() {
  for (auto& [id, session] : sessions_) {
    if (session.is_counted) {
      return turn_away(session, "too many connections without a handshake");
    }
  }
}

/// Closes the connection at once, without an answer. The session is removed when the connection
/// reports that it is closed.
void ControlSessions::turn_away(Held& session, const std::string& why) {
  if (session.stage == SessionStage::kUnauthenticated) {  // otherwise this was logged before
    rejection_log_.turned_away(session.who, why);
  }
  session.stage = SessionStage::kLeaving;
  stop_counting(session);
  if (session.tls != nullptr) {
    session.tls->abandon();
  }
  session.connection->close(why);
}

void ControlSessions::stop_counting(Held& session) {
  unauthenticated_ -= session.is_counted ? 1 : 0;
  session.is_counted = false;
}

void ControlSessions::tick(Instant now) {
  if (now < next_sweep_) {
    return;
  }
  next_sweep_ = now + kSweepInterval;
  for (auto& [id, session] : sessions_) {
    if (now <= session.deadline) {
      continue;
    }
    if (session.stage == SessionStage::kUnauthenticated) {
      turn_away(session, "no handshake in time");
    } else if (session.stage == SessionStage::kOperator) {
      leave(session);
    }
  }
}

void ControlSessions::on_message(Connection& connection, Message message) {
  const auto found = sessions_.find(connection.id());
  if (found == sessions_.end() || shutting_down()) {
    return;
  }
  Held& session = found->second;
  if (session.stage == SessionStage::kUnauthenticated) {
    handle_hello(session, std::move(message));
  } else if (session.stage != SessionStage::kLeaving) {
    session.deadline = monotonic_now() + kOperatorIdleMax;
    owner_.on_session_message(session, std::move(message));
  }
}

void ControlSessions::handle_hello(Held& session, Message message) {
  auto* hello = std::get_if<Hello>(&message);
  if (hello == nullptr) {
    return turn_away(session, std::string("unexpected ") + name_of(message));
  }
  // A member of a job that has lost its coordinator trains on, and looks for it at this address. It
  // is not refused for good here: it would end without having saved its state. Nor is its sentinel,
  // which would end the worker if that did not move for a while.
  const bool may_be_member = hello->role == Role::kWorker || hello->role == Role::kSentinel;
  const bool is_member = may_be_member && hello->member != MemberId{};
  if (const auto reason = reason_to_refuse(*hello, token_, session.nonce)) {
    return refuse(session.id, {*reason, is_member ? Refusal::kElsewhere : Refusal::kFinal});
  }
  session.job = hello->job;
  session.place.address = hello->address;
  session.place.name = printable(hello->host);
  session.is_awaited = hello->role == Role::kWorker;
  if (session.is_awaited) {
    session.who = "the worker on " + session.place.name + " (process " +
                  std::to_string(hello->pid) + ", " + session.who + ")";
    if (const auto reason =
            is_member ? std::nullopt : reason_out_of_reach(session.place, worker_places())) {
      return refuse(session.id, Refused{*reason});
    }
  }
  owner_.on_hello(session, std::move(*hello));
}

void ControlSessions::on_closed(Connection& connection, const std::string& detail) {
  const auto found = sessions_.find(connection.id());
  if (found == sessions_.end()) {
    return;
  }
  Held& held = found->second;
  stop_counting(held);
  if (held.stage == SessionStage::kUnauthenticated && !shutting_down()) {
    const bool has_failed = held.tls != nullptr && !held.tls->failure().empty();
    if (has_failed) {  // it may be a worker with another token, which the user should know
      rejection_log_.refused(held.who, detail);
    } else {
      rejection_log_.turned_away(held.who, "no handshake: " + detail);
    }
  }
  const Session session = held;
  sessions_.erase(found);
  if (shutting_down()) {
    if (sessions_.empty()) {
      on_empty_();
    }
    return;
  }
  if (session.stage == SessionStage::kUnauthenticated || session.stage == SessionStage::kLeaving) {
    return;
  }
  if (session.stage == SessionStage::kWorker) {
    worker_of_.erase(session.member);
  }
  owner_.on_session_lost(session, detail);
}

ControlSessions::Held& ControlSessions::unauthenticated(std::uint64_t id) {
  const auto found = sessions_.find(id);
  ENSURE(found != sessions_.end() && found->second.stage == SessionStage::kUnauthenticated,
         "only a connection that waits for it is admitted, refused or released");
  return found->second;
}

ControlSessions::Held* ControlSessions::session_of(MemberId worker) {
  const auto id = worker_of_.find(worker);
  const auto session = id == worker_of_.end() ? sessions_.end() : sessions_.find(id->second);
  return session == sessions_.end() ? nullptr : &session->second;
}

void ControlSessions::admit(std::uint64_t id, SessionStage stage, MemberId member) {
  Held& session = unauthenticated(id);
  stop_counting(session);
  session.deadline = monotonic_now() + kOperatorIdleMax;
  session.stage = stage;
  session.member = member;
  session.connection->set_frame_limit(kMessageBytesMax);
  if (stage == SessionStage::kWorker) {
    const auto [place, is_new] = worker_of_.try_emplace(member, id);
    if (!is_new) {  // the worker connected again before its old connection was seen to break
      leave(sessions_.at(std::exchange(place->second, id)));
    }
  }
}

UniqueFd ControlSessions::release(std::uint64_t id) {
  Held& session = unauthenticated(id);
  stop_counting(session);
  UniqueFd fd = session.connection->release();
  sessions_.erase(id);
  return fd;
}

void ControlSessions::refuse(std::uint64_t id, const Refused& refused) {
  Held& session = unauthenticated(id);
  if (session.is_awaited && refused.refusal == Refusal::kFinal) {
    rejection_log_.refused(session.who, refused.reason);
  } else {
    rejection_log_.turned_away(session.who, refused.reason);
  }
  session.connection->send(refused);
  leave(session);
}

void ControlSessions::send(std::uint64_t id, const Message& message) {
  if (const auto found = sessions_.find(id); found != sessions_.end()) {
    found->second.connection->send(message);
  }
}

void ControlSessions::close(std::uint64_t id, const std::string& detail) {
  if (const auto found = sessions_.find(id); found != sessions_.end()) {
    found->second.connection->close(detail);
  }
}

void ControlSessions::send_to_worker(MemberId member, const Message& message) {
  if (const Held* session = session_of(member)) {
    session->connection->send(message);
  }
}

void ControlSessions::send_to_workers(const std::vector<MemberId>& members,
                                      const Message& message) {
  const Bytes frame = to_frame(message);
  for (const MemberId member : members) {
    if (const Held* session = session_of(member)) {
      session->connection->send_frame(frame);
    }
  }
}

void ControlSessions::send_to_all_workers(const Message& message) {
  const Bytes frame = to_frame(message);
  for (const auto& [member, id] : worker_of_) {
    if (const Held* session = session_of(member)) {
      session->connection->send_frame(frame);
    }
  }
}

std::vector<MemberPlace> ControlSessions::worker_places() const {
  std::vector<MemberPlace> places;
  for (const auto& [member, id] : worker_of_) {
    if (const auto session = sessions_.find(id); session != sessions_.end()) {
      places.push_back(session->second.place);
    }
  }
  return places;
}

void ControlSessions::probe(MemberId member) {
  send_to_worker(member, Heartbeat{});  // only its acknowledgement matters
  probed_.insert(member);
}

std::vector<MemberId> ControlSessions::answered_probes() {
  std::vector<MemberId> answered;
  std::erase_if(probed_, [&](MemberId member) {
    const Held* session = session_of(member);
    if (session != nullptr && !session->connection->everything_acknowledged()) {
      return false;
    }
    if (session != nullptr) {
      answered.push_back(member);
    }
    return true;
  });
  return answered;
}

void ControlSessions::disconnect(MemberId member) {
  worker_of_.erase(member);
  for (auto& [id, session] : sessions_) {
    if (session.stage == SessionStage::kWorker && session.member == member) {
      leave(session);
    } else if (session.stage == SessionStage::kSentinel && session.member == member) {
      session.connection->finish(Connection::LateMessages::kDelivered);
    }
  }
}

void ControlSessions::leave(Held& session) {
  session.stage = SessionStage::kLeaving;
  session.connection->finish();
}

}  // namespace mayfly::elastic
