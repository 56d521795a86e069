#include "elastic/net/control_sessions.hpp"

#include <cerrno>
#include <chrono>
#include <utility>

#include "base/check.hpp"
#include "base/log.hpp"
#include "elastic/net/handshake.hpp"
#include "elastic/net/job_token.hpp"
#include "elastic/net/sockets.hpp"

namespace mayfly::elastic {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr auto kAcceptRetryDelay = std::chrono::milliseconds(100);
constexpr auto kFlushTimeout = std::chrono::milliseconds(2500);
constexpr Duration kHandshakeTimeout = seconds(5);
constexpr std::size_t kStrangersMax = 256;

}  // namespace

ControlSessions::ControlSessions(boost::asio::io_context& io, UniqueFd listener, bool v6,
                                 Bytes token, SessionOwner& owner)
    : io_(io),
      acceptor_(io),
      accept_timer_(io),
      flush_timer_(io),
      token_(std::move(token)),
      owner_(owner) {
  error_code error;
  acceptor_.assign(v6 ? tcp::v6() : tcp::v4(), listener.release(), error);
  ENSURE(!error, "a fresh socket can be registered");
}

void ControlSessions::shut_down(std::function<void()> on_empty) {
  on_empty_ = std::move(on_empty);
  error_code error;
  acceptor_.close(error);
  accept_timer_.cancel();
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

void ControlSessions::accept_more() {
  acceptor_.async_wait(tcp::acceptor::wait_read, [this](const error_code& error) {
    if (!error && !shutting_down()) {
      accept_all();
    }
  });
}

void ControlSessions::accept_all() {
  while (true) {
    // Not through Asio: it would not set close-on-exec, and a worker started at that moment would
    // inherit the connection and keep it open after we have closed it.
    UniqueFd fd = accept_tcp(acceptor_.native_handle());
    if (fd.valid()) {
      greet(std::move(fd));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      log::warning("the coordinator has no descriptors left for new connections");
      accept_later();
      return;
    } else if (errno != ECONNABORTED && errno != EINTR) {
      accept_more();
      return;
    }
  }
}

void ControlSessions::accept_later() {
  accept_timer_.expires_after(kAcceptRetryDelay);
  accept_timer_.async_wait([this](const error_code& error) {
    if (!error) {
      accept_all();
    }
  });
}

void ControlSessions::greet(UniqueFd fd) {
  if (strangers_ >= kStrangersMax) {
    drop_oldest_stranger();
  }
  Held session;
  session.id = next_id_++;
  session.connection =
      std::make_shared<Connection>(io_, std::move(fd), session.id, kStrangerFrameBytesMax, *this);
  session.nonce = make_nonce();
  session.deadline = monotonic_now() + kHandshakeTimeout;
  session.connection->start();
  session.connection->send(Challenge{session.nonce});
  sessions_.emplace(session.id, std::move(session));
  ++strangers_;
}

/// A flood of strangers must neither exhaust our descriptors nor keep others out: a handshake takes
/// a millisecond, so whoever has waited longest has the least claim.
void ControlSessions::drop_oldest_stranger() {
  for (auto& [id, session] : sessions_) {
    if (session.stage == SessionStage::kStranger) {
      session.stage = SessionStage::kLeaving;
      session.connection->close("too many connections without a handshake");
      --strangers_;
      return;
    }
  }
}

void ControlSessions::tick(Instant now) {
  if (strangers_ == 0) {
    return;
  }
  for (auto& [id, session] : sessions_) {
    if (session.stage == SessionStage::kStranger && now > session.deadline) {
      session.connection->close("no handshake in time");
    }
  }
}

void ControlSessions::on_message(Connection& connection, Message message) {
  const auto found = sessions_.find(connection.id());
  if (found == sessions_.end() || shutting_down()) {
    return;
  }
  Held& session = found->second;
  if (session.stage == SessionStage::kStranger) {
    handle_hello(session, std::move(message));
  } else if (session.stage != SessionStage::kLeaving) {
    owner_.on_session_message(session, std::move(message));
  }
}

void ControlSessions::handle_hello(Held& session, Message message) {
  auto* hello = std::get_if<Hello>(&message);
  if (hello == nullptr) {
    session.connection->close(std::string("unexpected ") + name_of(message));
    return;
  }
  if (const auto reason = reason_to_refuse(*hello, token_, session.nonce)) {
    return refuse(session.id, Refused{*reason});
  }
  owner_.on_hello(session, std::move(*hello));
}

void ControlSessions::on_closed(Connection& connection, const std::string& detail) {
  const auto found = sessions_.find(connection.id());
  if (found == sessions_.end()) {
    return;
  }
  const Session session = found->second;
  sessions_.erase(found);
  if (session.stage == SessionStage::kStranger) {
    --strangers_;
  }
  if (shutting_down()) {
    if (sessions_.empty()) {
      on_empty_();
    }
    return;
  }
  if (session.stage == SessionStage::kStranger || session.stage == SessionStage::kLeaving) {
    return;
  }
  if (session.stage == SessionStage::kWorker) {
    worker_of_.erase(session.member);
  }
  owner_.on_session_lost(session, detail);
}

void ControlSessions::admit(std::uint64_t id, SessionStage stage, MemberId member) {
  const auto found = sessions_.find(id);
  ENSURE(found != sessions_.end() && found->second.stage == SessionStage::kStranger,
         "only a connection that waits for it is admitted");
  --strangers_;
  found->second.stage = stage;
  found->second.member = member;
  found->second.connection->set_frame_limit(kMessageBytesMax);
  if (stage == SessionStage::kWorker) {
    const auto [place, is_new] = worker_of_.try_emplace(member, id);
    if (!is_new) {  // it came back before we saw its old connection break
      leave(sessions_.at(std::exchange(place->second, id)));
    }
  }
}

void ControlSessions::refuse(std::uint64_t id, const Refused& refused) {
  const auto found = sessions_.find(id);
  ENSURE(found != sessions_.end() && found->second.stage == SessionStage::kStranger,
         "only a connection that waits for it is refused");
  log::info("refused a connection: " + refused.reason);
  found->second.connection->send(refused);
  leave(found->second);
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
  if (const auto found = worker_of_.find(member); found != worker_of_.end()) {
    send(found->second, message);
  }
}

void ControlSessions::send_to_workers(const std::vector<MemberId>& members,
                                      const Message& message) {
  const Bytes frame = to_frame(message);
  for (const MemberId member : members) {
    const auto worker = worker_of_.find(member);
    const auto session =
        worker == worker_of_.end() ? sessions_.end() : sessions_.find(worker->second);
    if (session != sessions_.end()) {
      session->second.connection->send_frame(frame);
    }
  }
}

void ControlSessions::send_to_all_workers(const Message& message) {
  const Bytes frame = to_frame(message);
  for (const auto& [member, id] : worker_of_) {
    if (const auto session = sessions_.find(id); session != sessions_.end()) {
      session->second.connection->send_frame(frame);
    }
  }
}

void ControlSessions::probe(MemberId member) {
  send_to_worker(member, Heartbeat{});  // says nothing to the member
  probed_.insert(member);
}

std::vector<MemberId> ControlSessions::answered_probes() {
  std::vector<MemberId> answered;
  std::erase_if(probed_, [&](MemberId member) {
    const auto worker = worker_of_.find(member);
    const auto session =
        worker == worker_of_.end() ? sessions_.end() : sessions_.find(worker->second);
    if (session == sessions_.end()) {
      return true;
    }
    const bool has = session->second.connection->everything_acknowledged();
    if (has) {
      answered.push_back(member);
    }
    return has;
  });
  return answered;
}

void ControlSessions::disconnect(MemberId member) {
  worker_of_.erase(member);
  for (auto& [id, session] : sessions_) {
    const bool held =
        session.stage == SessionStage::kWorker || session.stage == SessionStage::kSentinel;
    if (held && session.member == member) {
      leave(session);
    }
  }
}

void ControlSessions::leave(Held& session) {
  if (session.stage == SessionStage::kStranger) {
    --strangers_;
  }
  session.stage = SessionStage::kLeaving;
  session.connection->finish();
}

}  // namespace mayfly::elastic
