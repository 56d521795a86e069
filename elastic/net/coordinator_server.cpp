#include "elastic/net/coordinator_server.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <charconv>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.hpp"
#include "base/log.hpp"
#include "elastic/net/connection.hpp"
#include "elastic/net/handshake.hpp"
#include "elastic/net/job_token.hpp"
#include "elastic/net/sockets.hpp"

namespace mayfly::elastic {
namespace {

namespace asio = boost::asio;
namespace event = coordinator_event;
namespace effect = coordinator_effect;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kTickInterval = std::chrono::milliseconds(5);
constexpr auto kAcceptRetryDelay = std::chrono::milliseconds(100);
constexpr auto kFlushTimeout = std::chrono::milliseconds(2500);
constexpr Duration kHandshakeTimeout = seconds(5);
constexpr std::size_t kStrangersMax = 256;

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

/// What a connection has turned out to be.
enum class Stage { kStranger, kWorker, kSentinel, kOperator, kLeaving };

struct Session {
  std::shared_ptr<Connection> connection;
  Stage stage = Stage::kStranger;
  Bytes nonce;        // of our challenge
  Instant deadline;   // kStranger: of its Hello
  MemberId member{};  // kWorker, kSentinel
};

/// What a worker may send after its handshake.
bool is_from_worker(const Message& message) {
  return std::visit(
      Overloaded{[](const Ready&) { return true; }, [](const Stopped&) { return true; },
                 [](const Formed&) { return true; }, [](const Synced&) { return true; },
                 [](const Progress&) { return true; }, [](const Heartbeat&) { return true; },
                 [](const LeaveRequest&) { return true; }, [](const Report&) { return true; },
                 [](const StoreSet&) { return true; }, [](const StoreGet&) { return true; },
                 [](const auto&) { return false; }},
      message);
}

class Server final : public CoordinatorServer, public ConnectionOwner {
 public:
  Server(CoordinatorServerOptions options, UniqueFd listener, CoordinatorObserver& observer);
  ~Server() override;

  [[nodiscard]] std::string endpoint() const override { return endpoint_; }
  void drain(MemberId member, std::string reason) override {
    post_event(event::DrainAsked{member, std::move(reason)});
  }
  void pause(bool paused) override { post_event(event::PauseAsked{paused}); }
  void stop(std::string reason) override { post_event(event::StopAsked{std::move(reason)}); }
  void fail(std::string reason) override { post_event(event::FailAsked{std::move(reason)}); }
  [[nodiscard]] JobStatus status() const override {
    const std::lock_guard lock(status_mutex_);
    return status_;
  }

 private:
  void on_message(Connection& connection, Message message) override;
  void on_closed(Connection& connection, const std::string& detail) override;

  void accept_more();
  void accept_all();
  void greet(UniqueFd fd);
  void schedule_tick();
  void drop_oldest_stranger();
  void drop_slow_strangers(Instant now);

  void handle_hello(std::uint64_t id, Session& session, Message message);
  void admit(Session& session, Stage stage, MemberId member);
  void refuse(Session& session, const std::string& reason);
  void handle_worker(Session& session, Message message);
  void handle_sentinel(Session& session, const Message& message);
  void handle_operator(Session& session, const Message& message);
  [[nodiscard]] CommandReply run_command(const Command& command);
  [[nodiscard]] CommandReply drain_command(const std::string& argument);

  void post_event(CoordinatorEvent each);
  void handle(const CoordinatorEvent& each);
  void apply(Instant now, effect::Accept& accept);
  void apply(Instant now, effect::Refuse& refusal);
  void apply(Instant now, effect::Send& send);
  void apply(Instant now, effect::Disconnect& disconnect);
  void apply(Instant now, effect::Note& note) { observer_.on_note(now, note); }
  void apply(Instant now, effect::ViewPublished& v) { observer_.on_view(now, v.view); }
  void apply(Instant, effect::RecoveryDone& r) { observer_.on_recovery(r.recovery); }
  void apply(Instant, effect::JoinDone& j) { observer_.on_join(j.join); }
  void apply(Instant, effect::ReportReceived& r) { observer_.on_report(r.member, r.payload); }
  void apply(Instant, effect::JobEnded& e) { observer_.on_ended(e.outcome, e.detail); }

  [[nodiscard]] bool is_member(MemberId member) const;
  void leave(Session& session);
  void refresh_status();
  void shut_down();

  asio::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  asio::steady_timer tick_timer_{io_};
  asio::steady_timer accept_timer_{io_};
  asio::steady_timer flush_timer_{io_};
  std::string endpoint_;
  Bytes token_;
  Coordinator core_;
  CoordinatorObserver& observer_;
  std::map<std::uint64_t, Session> sessions_;
  std::map<MemberId, std::uint64_t> worker_of_;  // the session of each connected member
  std::uint64_t next_id_ = 1;
  std::size_t strangers_ = 0;
  bool shutting_down_ = false;

  mutable std::mutex status_mutex_;
  JobStatus status_;  // guarded by status_mutex_

  std::thread thread_;
};

/// Where to connect to: a wildcard address can be listened on but not connected to.
std::string reachable_endpoint(const std::string& host, std::uint16_t port) {
  const bool wildcard = host.empty() || host == "0.0.0.0" || host == "::" || host == "*";
  return to_string(Endpoint{wildcard ? "127.0.0.1" : host, port});
}

Server::Server(CoordinatorServerOptions options, UniqueFd listener, CoordinatorObserver& observer)
    : endpoint_(reachable_endpoint(options.host, local_port(listener.get()))),
      token_(std::move(options.token)),
      core_(std::move(options.core)),
      observer_(observer) {
  const bool v6 = options.host.find(':') != std::string::npos;
  error_code error;
  acceptor_.assign(v6 ? tcp::v6() : tcp::v4(), listener.release(), error);
  ENSURE(!error, "a fresh socket can be registered");
  refresh_status();
  accept_more();
  schedule_tick();
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "coordinator");
    io_.run();
  });
}

Server::~Server() {
  asio::post(io_, [this] { shut_down(); });
  thread_.join();
}

void Server::shut_down() {
  shutting_down_ = true;
  error_code error;
  acceptor_.close(error);
  tick_timer_.cancel();
  accept_timer_.cancel();
  for (auto& [id, session] : sessions_) {
    session.connection->finish();
  }
  if (sessions_.empty()) {
    io_.stop();
    return;
  }
  flush_timer_.expires_after(kFlushTimeout);
  flush_timer_.async_wait([this](const error_code&) { io_.stop(); });
}

// --- connections
// -----------------------------------------------------------------------------------

void Server::accept_more() {
  acceptor_.async_wait(tcp::acceptor::wait_read, [this](const error_code& error) {
    if (!error && !shutting_down_) {
      accept_all();
    }
  });
}

void Server::accept_all() {
  while (true) {
    // Not through Asio: it would not set close-on-exec, and a worker started at that moment would
    // inherit the connection and keep it open after we have closed it.
    UniqueFd fd = accept_tcp(acceptor_.native_handle());
    if (fd.valid()) {
      greet(std::move(fd));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      log::warning("the coordinator has no descriptors left for new connections");
      accept_timer_.expires_after(kAcceptRetryDelay);
      accept_timer_.async_wait([this](const error_code& error) {
        if (!error) {
          accept_all();
        }
      });
      return;
    } else if (errno != ECONNABORTED && errno != EINTR) {
      accept_more();
      return;
    }
  }
}

void Server::greet(UniqueFd fd) {
  if (strangers_ >= kStrangersMax) {
    drop_oldest_stranger();
  }
  const std::uint64_t id = next_id_++;
  Session session;
  session.connection =
      std::make_shared<Connection>(io_, std::move(fd), id, kStrangerFrameBytesMax, *this);
  session.nonce = make_nonce();
  session.deadline = monotonic_now() + kHandshakeTimeout;
  session.connection->start();
  session.connection->send(Challenge{session.nonce});
  sessions_.emplace(id, std::move(session));
  ++strangers_;
}

void Server::schedule_tick() {
  tick_timer_.expires_after(kTickInterval);
  tick_timer_.async_wait([this](const error_code& error) {
    if (error || shutting_down_) {
      return;
    }
    handle(event::Tick{});
    if (strangers_ > 0) {
      drop_slow_strangers(monotonic_now());
    }
    schedule_tick();
  });
}

/// A flood of strangers must neither exhaust our descriptors nor keep others out: a handshake takes
/// a millisecond, so whoever has waited longest has the least claim.
void Server::drop_oldest_stranger() {
  for (auto& [id, session] : sessions_) {
    if (session.stage == Stage::kStranger) {
      session.stage = Stage::kLeaving;
      session.connection->close("too many connections without a handshake");
      --strangers_;
      return;
    }
  }
}

void Server::drop_slow_strangers(Instant now) {
  for (auto& [id, session] : sessions_) {
    if (session.stage == Stage::kStranger && now > session.deadline) {
      session.connection->close("no handshake in time");
    }
  }
}

void Server::on_message(Connection& connection, Message message) {
  const auto found = sessions_.find(connection.id());
  if (found == sessions_.end() || shutting_down_) {
    return;
  }
  Session& session = found->second;
  switch (session.stage) {
    case Stage::kStranger: return handle_hello(found->first, session, std::move(message));
    case Stage::kWorker: return handle_worker(session, std::move(message));
    case Stage::kSentinel: return handle_sentinel(session, message);
    case Stage::kOperator: return handle_operator(session, message);
    case Stage::kLeaving: return;
  }
}

void Server::on_closed(Connection& connection, const std::string& detail) {
  const auto found = sessions_.find(connection.id());
  if (found == sessions_.end()) {
    return;
  }
  const Stage stage = found->second.stage;
  const MemberId member = found->second.member;
  sessions_.erase(found);
  if (stage == Stage::kStranger) {
    --strangers_;
  }
  if (shutting_down_) {
    if (sessions_.empty()) {
      io_.stop();
    }
    return;
  }
  if (stage == Stage::kWorker) {
    worker_of_.erase(member);
    handle(event::ConnectionLost{member, detail});
  } else if (stage == Stage::kSentinel) {
    // Says nothing about the worker; if its host died, silence will show it.
    log::debug(fmt::format("sentinel of member {} is gone: {}", value(member), detail));
  }
}

void Server::leave(Session& session) {
  if (session.stage == Stage::kStranger) {
    --strangers_;
  }
  session.stage = Stage::kLeaving;
  session.connection->finish();
}

// --- handshake
// -------------------------------------------------------------------------------------

void Server::handle_hello(std::uint64_t id, Session& session, Message message) {
  auto* hello = std::get_if<Hello>(&message);
  if (hello == nullptr) {
    session.connection->close(std::string("unexpected ") + name_of(message));
    return;
  }
  if (const auto reason = reason_to_refuse(*hello, token_, session.nonce)) {
    return refuse(session, *reason);
  }
  switch (hello->role) {
    case Role::kWorker: handle(event::WorkerConnected{id, std::move(*hello)}); return;
    case Role::kSentinel:
      if (!is_member(hello->member)) {
        return refuse(session, fmt::format("no member {}", value(hello->member)));
      }
      admit(session, Stage::kSentinel, hello->member);
      break;
    case Role::kOperator: admit(session, Stage::kOperator, MemberId{}); break;
  }
  session.connection->send(Welcome{session.member});
}

void Server::admit(Session& session, Stage stage, MemberId member) {
  --strangers_;
  session.stage = stage;
  session.member = member;
  session.connection->set_frame_limit(kMessageBytesMax);
}

void Server::refuse(Session& session, const std::string& reason) {
  log::info("refused a connection: " + reason);
  session.connection->send(Refused{reason});
  leave(session);
}

// --- messages
// --------------------------------------------------------------------------------------

void Server::handle_worker(Session& session, Message message) {
  if (!is_from_worker(message)) {
    session.connection->close(std::string("unexpected ") + name_of(message));
    return;
  }
  handle(event::Received{session.member, std::move(message)});
}

void Server::handle_sentinel(Session& session, const Message& message) {
  if (std::holds_alternative<Heartbeat>(message)) {
    handle(event::SentinelBeat{session.member});
  } else if (const auto* died = std::get_if<WorkerDied>(&message)) {
    handle(event::SentinelReport{session.member, died->detail});
  } else {
    session.connection->close(std::string("unexpected ") + name_of(message));
  }
}

void Server::handle_operator(Session& session, const Message& message) {
  if (const auto* command = std::get_if<Command>(&message)) {
    session.connection->send(run_command(*command));
  } else {
    session.connection->close(std::string("unexpected ") + name_of(message));
  }
}

CommandReply Server::run_command(const Command& command) {
  if (command.verb == "drain") {
    return drain_command(command.argument);
  }
  if (command.verb == "pause" || command.verb == "resume") {
    handle(event::PauseAsked{command.verb == "pause"});
    return {true, command.verb == "pause" ? "pausing at the next step boundary" : "resuming"};
  }
  if (command.verb == "stop") {
    handle(event::StopAsked{command.argument.empty() ? "operator" : command.argument});
    return {true, "stopping at the next step boundary"};
  }
  refresh_status();
  return observer_.on_command(command);
}

CommandReply Server::drain_command(const std::string& argument) {
  std::uint64_t number = 0;
  const char* end = argument.data() + argument.size();
  const auto parsed = std::from_chars(argument.data(), end, number);
  if (argument.empty() || parsed.ec != std::errc() || parsed.ptr != end) {
    return {false, "'" + argument + "' is not a member's number"};
  }
  if (!is_member(MemberId{number})) {
    return {false, fmt::format("no member {}", number)};
  }
  handle(event::DrainAsked{MemberId{number}, "operator"});
  return {true, fmt::format("draining member {} at the next step boundary", number)};
}

// --- the machine
// -----------------------------------------------------------------------------------

void Server::post_event(CoordinatorEvent each) {
  asio::post(io_, [this, each = std::move(each)] {
    if (!shutting_down_) {
      handle(each);
    }
  });
}

void Server::handle(const CoordinatorEvent& each) {
  const Instant now = monotonic_now();
  std::vector<CoordinatorEffect> effects = core_.handle(now, each);
  const bool quiet = std::all_of(effects.begin(), effects.end(), [](const auto& one) {
    return std::holds_alternative<effect::Send>(one);
  });
  // Before the observer hears of anything, so that status() never lags behind its news. Messages
  // that only change a number (progress) wait for the next tick.
  if (!quiet || std::holds_alternative<event::Tick>(each)) {
    refresh_status();
  }
  for (CoordinatorEffect& one : effects) {
    std::visit([&](auto& which) { apply(now, which); }, one);
  }
}

void Server::apply(Instant, effect::Accept& accept) {
  const auto found = sessions_.find(accept.connection);
  ENSURE(found != sessions_.end(), "only a connection that waits for it is accepted");
  worker_of_[accept.member] = accept.connection;
  admit(found->second, Stage::kWorker, accept.member);  // the machine sends Welcome next
}

void Server::apply(Instant, effect::Refuse& refusal) {
  const auto found = sessions_.find(refusal.connection);
  ENSURE(found != sessions_.end(), "only a connection that waits for it is refused");
  refuse(found->second, refusal.reason);
}

void Server::apply(Instant, effect::Send& send) {
  // The connection may have broken a moment ago; the machine hears of it next.
  if (const auto found = worker_of_.find(send.member); found != worker_of_.end()) {
    sessions_.at(found->second).connection->send(send.message);
  }
}

void Server::apply(Instant, effect::Disconnect& disconnect) {
  worker_of_.erase(disconnect.member);
  for (auto& [id, session] : sessions_) {
    const bool held = session.stage == Stage::kWorker || session.stage == Stage::kSentinel;
    if (held && session.member == disconnect.member) {
      leave(session);
    }
  }
}

bool Server::is_member(MemberId member) const {
  return worker_of_.count(member) != 0;
}

void Server::refresh_status() {
  JobStatus fresh{core_.phase(), core_.committed(), ViewId{}, core_.members()};
  if (core_.view()) {
    fresh.view = core_.view()->id;
  }
  const std::lock_guard lock(status_mutex_);
  status_ = std::move(fresh);
}

}  // namespace

Result<std::unique_ptr<CoordinatorServer>> start_coordinator(CoordinatorServerOptions options,
                                                             CoordinatorObserver& observer) {
  Result<UniqueFd> listener = listen_tcp(Endpoint{options.host, options.port});
  if (!listener.ok()) {
    return std::move(listener).error();
  }
  return std::unique_ptr<CoordinatorServer>(
      std::make_unique<Server>(std::move(options), std::move(listener).value(), observer));
}

}  // namespace mayfly::elastic
