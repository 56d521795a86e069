#pragma once

// The coordinator's side of its control connections: accepts them, challenges each client, and
// knows what each has turned out to be. Private to elastic/net (it shows Asio). Everything runs on
// the thread of the io_context.

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
  MemberId member{};  // kWorker, kSentinel
  MemberPlace place;  // of a client that has sent Hello
};

/// Callbacks about the sessions. Called on the io_context's thread.
class SessionOwner {
 public:
  virtual ~SessionOwner() = default;
  /// An unauthenticated connection proved that it knows the token, and is within reach of the
  /// members if it is a worker. The owner admits or refuses it, now or later.
  virtual void on_hello(const Session& session, Hello hello) = 0;
  /// A message of an admitted session.
  virtual void on_session_message(const Session& session, Message message) = 0;
  /// An admitted session is over and not by our own leave(). Its id is already forgotten.
  virtual void on_session_lost(const Session& session, const std::string& detail) = 0;
};

class ControlSessions final : public ConnectionOwner {
 public:
  /// Takes over a listening socket. `owner` must outlive the io_context's run.
  ControlSessions(boost::asio::io_context& io, UniqueFd listener, Bytes token, SessionOwner& owner);

  /// Starts accepting.
  void start() { accept_loop_.start(); }
  /// Closes unauthenticated connections that have not said Hello in time, and operators that have
  /// nothing to say. Call every few milliseconds.
  void tick(Instant now);

  /// The unauthenticated connection `id` is a worker, sentinel or operator from now on.
  void admit(std::uint64_t id, SessionStage stage, MemberId member);
  /// The unauthenticated connection `id` is no session any more; returns its non-blocking socket.
  [[nodiscard]] UniqueFd release(std::uint64_t id);
  /// Sends the reason, then closes. A worker that is refused finally is named in a warning.
  void refuse(std::uint64_t id, const Refused& refused);
  /// Nothing if the session is gone: its owner is told of that next.
  void send(std::uint64_t id, const Message& message);
  /// Closes at once because of a message that must not come.
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
  /// Closes the member's connections after what was sent to them. Of its sentinel the owner hears
  /// what is on its way: word of the worker's death may be.
  void disconnect(MemberId member);

  /// No more connections; sends what is queued, closes all, and calls `on_empty` once none is left
  /// or some seconds have passed. Nothing else is called from now on.
  void shut_down(std::function<void()> on_empty);
  [[nodiscard]] bool shutting_down() const { return on_empty_ != nullptr; }

 private:
  struct Held : Session {
    std::shared_ptr<Connection> connection;
    std::string who;                               // human-readable
    Bytes nonce;                                   // of our challenge
    std::shared_ptr<const TlsLink> tls = nullptr;  // null: not encrypted
    Instant deadline;        // kUnauthenticated: of its Hello; kOperator: of its next command
    bool is_counted = true;  // among unauthenticated_: not admitted, and not closed yet
    bool is_awaited = true;  // may be a worker: the user wants to hear why it is refused
  };

  void on_message(Connection& connection, Message message) override;
  void on_closed(Connection& connection, const std::string& detail) override;

  /// The connection that waits to be admitted, refused or released.
  Held& unauthenticated(std::uint64_t id);
  /// The session of the member's worker; null if it is not connected.
  Held* session_of(MemberId worker);
  void greet(UniqueFd fd);
  void say_full(int error);
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
  std::map<std::uint64_t, Held> sessions_;       // by the order in which they came
  std::map<MemberId, std::uint64_t> worker_of_;  // the session of each connected member
  std::set<MemberId> probed_;                    // and have not answered yet
  std::uint64_t next_id_ = 1;
  std::size_t unauthenticated_ = 0;  // not admitted, those that are being closed included
  Instant next_sweep_;               // for connections that are late
  RejectionLog rejection_log_{"control port"};
  AcceptLoop accept_loop_;
  bool has_said_full_ = false;      // that no descriptors are left
  std::function<void()> on_empty_;  // set by shut_down
};

}  // namespace mayfly::elastic
