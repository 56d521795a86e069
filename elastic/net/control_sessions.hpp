#pragma once

// The coordinator's side of its control connections: accepts them, challenges each client, and
// records the role of each. Private to elastic/net (it uses Asio's types). Everything runs on the
// thread of the io_context.

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/asio/accept_loop.hpp"
#include "base/bytes.hpp"
#include "base/net/accept.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "elastic/core/messages.hpp"
#include "elastic/net/connection.hpp"
#include "elastic/net/member_place.hpp"

namespace mayfly::elastic {

/// The role of the client of a connection, or its state before and after that is known.
enum class SessionStage { kUnauthenticated, kWorker, kSentinel, kOperator, kLeaving };

/// One connection, as its owner may see it.
struct Session {
  std::uint64_t id = 0;
  SessionStage stage = SessionStage::kUnauthenticated;
  MemberId member{};      // kWorker, kSentinel
  MemberPlace place;      // for a client that has sent Hello
  std::uint64_t job = 0;  // kSentinel: the job of its worker
};

/// Callbacks about the sessions. Called on the io_context's thread.
class SessionOwner {
 public:
  virtual ~SessionOwner() = default;
  /// An unauthenticated connection proved that it knows the token, and is within reach of the
  /// members if it is a new worker. The owner admits or refuses it, now or later.
  virtual void on_hello(const Session& session, Hello hello) = 0;
  /// A message of an admitted session.
  virtual void on_session_message(const Session& session, Message message) = 0;
  /// An admitted session has ended, and not by this side's leave(). Its id is already forgotten.
  virtual void on_session_lost(const Session& session, const std::string& detail) = 0;
};

class ControlSessions final : public ConnectionOwner {
 public:
  /// Takes over a listening socket. `owner` must outlive the io_context's run.
  ControlSessions(boost::asio::io_context& io, UniqueFd listener, Bytes token, SessionOwner& owner);

  /// Starts accepting.
  void start() { accept_loop_.start(); }
  /// Closes unauthenticated connections that have not sent Hello in time, and operators'
  /// connections that send no commands. Call every few milliseconds.
  void tick(Instant now);

  /// The unauthenticated connection `id` is a worker, sentinel or operator from now on.
  void admit(std::uint64_t id, SessionStage stage, MemberId member);
  /// The unauthenticated connection `id` is taken out of the sessions; returns its non-blocking
  /// socket.
  [[nodiscard]] UniqueFd release(std::uint64_t id);
  /// Sends the reason, then closes. A worker that is refused finally is named in a warning.
  void refuse(std::uint64_t id, const Refused& refused);
  /// Has no effect if the session is over; its owner will be told so.
  void send(std::uint64_t id, const Message& message);
  /// Closes at once, because the client sent a message that it must not send.
  void close(std::uint64_t id, const std::string& detail);

  /// To the member's worker, if it is connected.
  void send_to_worker(MemberId member, const Message& message);
  void send_to_workers(const std::vector<MemberId>& members, const Message& message);
  void send_to_all_workers(const Message& message);
  /// Sends the member's worker something that its machine must acknowledge.
  void probe(MemberId member);
  /// Members whose machines have acknowledged all that was sent to them since they were probed;
  /// each once.
  [[nodiscard]] std::vector<MemberId> answered_probes();
  [[nodiscard]] bool has(std::uint64_t id) const { return sessions_.contains(id); }
  [[nodiscard]] std::size_t size() const { return sessions_.size(); }
  [[nodiscard]] bool has_worker(MemberId member) const { return worker_of_.count(member) != 0; }
  /// Closes the member's connections after everything that was sent to them. Messages of its
  /// sentinel that are in transit are still passed to the owner, because the worker's death may be
  /// among them.
  void disconnect(MemberId member);

  /// Accepts no more connections, sends all queued messages, closes all sessions, and calls
  /// `on_empty` once none is left or some seconds have passed. No other callback is called from now
  /// on.
  void shut_down(std::function<void()> on_empty);
  [[nodiscard]] bool shutting_down() const { return on_empty_ != nullptr; }

 private:
  struct Held : Session {
    std::shared_ptr<Connection> connection;
    std::string who;                               // human-readable
    Bytes nonce;                                   // the nonce of this side's challenge
    std::shared_ptr<const TlsLink> tls = nullptr;  // null: not encrypted
    Instant deadline;        // kUnauthenticated: for its Hello; kOperator: for its next command
    bool is_counted = true;  // it counts in unauthenticated_: not admitted, and not closed yet
    bool is_awaited = true;  // it may be a worker, so the user is told if it is refused
  };

  void on_message(Connection& connection, Message message) override;
  void on_closed(Connection& connection, const std::string& detail) override;

  /// The connection that waits to be admitted, refused or released.
  Held& unauthenticated(std::uint64_t id);
  /// The session of the member's worker; null if it is not connected.
  Held* session_of(MemberId worker);
  void greet(UniqueFd fd);
  void report_full(int error);
  void drop_oldest_unauthenticated();
  void turn_away(Held& session, const std::string& why);
  void stop_counting(Held& session);
  void handle_hello(Held& session, Message message);
  void leave(Held& session);
  /// The places of all workers that are admitted and connected.
  [[nodiscard]] std::vector<MemberPlace> worker_places() const;

  boost::asio::io_context& io_;
  boost::asio::steady_timer flush_timer_;
  Bytes token_;
  SessionOwner& owner_;
  std::map<std::uint64_t, Held> sessions_;       // in the order of their arrival
  std::map<MemberId, std::uint64_t> worker_of_;  // the session of each connected member
  std::set<MemberId> probed_;  // members that have not acknowledged their probe yet
  std::uint64_t next_id_ = 1;
  std::size_t unauthenticated_ = 0;  // sessions that are not admitted, including those being closed
  Instant next_sweep_;               // when connections that are late are closed next
  RejectionLog rejection_log_{"control port"};
  AcceptLoop accept_loop_;
  bool full_reported_ = false;      // the user was told that no descriptors are left
  std::function<void()> on_empty_;  // set by shut_down
};

}  // namespace mayfly::elastic
