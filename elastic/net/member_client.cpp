#include "elastic/net/member_client.hpp"

#include <pthread.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "elastic/net/connection.hpp"
#include "elastic/net/handshake.hpp"

namespace mayfly::elastic {
namespace {

namespace asio = boost::asio;
namespace event = member_event;
namespace effect = member_effect;
using boost::system::error_code;

constexpr auto kHeartbeatInterval = std::chrono::milliseconds(50);
constexpr auto kFlushTimeout = std::chrono::milliseconds(2500);
constexpr auto kConnectRetryDelay = std::chrono::milliseconds(50);

/// The answers that threads wait for. Shared between them and the control thread.
class PendingGets {
 public:
  /// Announces a wait for the key, so that an answer is kept. Fails if no answer can come.
  Result<void> expect(ViewId view, const std::string& key);
  /// Waits for what was announced.
  Result<Bytes> wait(ViewId view, const std::string& key, Instant deadline);

  void answer(const StoreValue& value);
  /// The view is over: nobody will set its keys any more.
  void end_views_up_to(ViewId view);
  void end_connection();

 private:
  struct Slot {
    std::optional<Bytes> value;
    int waiting = 0;
  };
  using Key = std::pair<ViewId, std::string>;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Slot> slots_;  // guarded by mutex_, as all below
  std::optional<ViewId> last_ended_;
  bool lost_ = false;
};

Result<void> PendingGets::expect(ViewId view, const std::string& key) {
  const std::lock_guard lock(mutex_);
  if (lost_) {
    return Error{Errc::kPeerLost, "the connection to the coordinator is lost"};
  }
  ++slots_[Key{view, key}].waiting;
  return {};
}

Result<Bytes> PendingGets::wait(ViewId view, const std::string& key, Instant deadline) {
  std::unique_lock lock(mutex_);
  const auto slot = slots_.find(Key{view, key});
  ENSURE(slot != slots_.end(), "expect() comes before wait()");
  const auto ended = [&] { return last_ended_ && *last_ended_ >= view; };
  const auto ready = [&] { return slot->second.value.has_value() || lost_ || ended(); };
  // On Linux steady_clock is CLOCK_MONOTONIC, the clock of every Instant an adapter sees.
  const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline.ns)};
  const bool in_time = changed_.wait_until(lock, until, ready);
  Result<Bytes> result = Error{Errc::kDeadline, "nobody set '" + key + "' in time"};
  if (slot->second.value) {
    result = *slot->second.value;
  } else if (in_time && lost_) {
    result = Error{Errc::kPeerLost, "the connection to the coordinator is lost"};
  } else if (in_time) {
    result = Error{Errc::kAborted, "view " + std::to_string(mayfly::value(view)) + " is over"};
  }
  if (--slot->second.waiting == 0) {
    slots_.erase(slot);
  }
  return result;
}

void PendingGets::answer(const StoreValue& value) {
  const std::lock_guard lock(mutex_);
  if (const auto slot = slots_.find(Key{value.view, value.key}); slot != slots_.end()) {
    slot->second.value = value.value;
    changed_.notify_all();
  }
}

void PendingGets::end_views_up_to(ViewId view) {
  const std::lock_guard lock(mutex_);
  last_ended_ = last_ended_ ? std::max(*last_ended_, view) : view;
  changed_.notify_all();
}

void PendingGets::end_connection() {
  const std::lock_guard lock(mutex_);
  lost_ = true;
  changed_.notify_all();
}

class Client final : public MemberClient, public ConnectionOwner {
 public:
  explicit Client(OpenSession session);
  ~Client() override;

  [[nodiscard]] MemberId id() const override { return self_; }
  void start(MemberHandler& handler) override;

  void post(MemberEvent each) override {
    asio::post(io_, [this, each = std::move(each)] { handle(each); });
  }
  void send_progress(const Progress& progress) override { post_message(progress); }
  void send_report(Bytes payload) override { post_message(Report{std::move(payload)}); }
  Result<void> store_set(ViewId view, const std::string& key, ByteSpan value) override;
  Result<Bytes> store_get(ViewId view, const std::string& key, Instant deadline) override;

 private:
  void on_message(Connection& connection, Message message) override;
  void on_closed(Connection& connection, const std::string& detail) override;

  void post_message(Message message) {
    asio::post(io_, [this, message = std::move(message)] { connection_->send(message); });
  }
  void handle(const MemberEvent& each);
  void apply(effect::Send& send) { connection_->send(send.message); }
  void apply(effect::RunView& run);
  void apply(effect::AbortGroup& abort);
  void apply(effect::AskForBoundary& ask) { handler_->ask_for_boundary(ask.view); }
  void apply(effect::Leave& leave) { handler_->leave(leave); }
  void apply(effect::Adopt&) {}
  void apply(effect::TryElsewhere&) {}
  void schedule_heartbeat();
  void shut_down();

  MemberId self_;
  asio::io_context io_{1};
  asio::steady_timer heartbeat_timer_{io_};
  asio::steady_timer flush_timer_{io_};
  Member machine_;
  std::shared_ptr<Connection> connection_;
  MemberHandler* handler_ = nullptr;       // control thread only, as all below but lost_ and gets_
  std::vector<MemberEvent> early_events_;  // that came before start()
  PendingGets gets_;
  std::atomic<bool> lost_{false};
  bool shutting_down_ = false;
  std::thread thread_;
};

Client::Client(OpenSession session)
    : self_(session.member),
      machine_(session.member),
      connection_(
          std::make_shared<Connection>(io_, std::move(session.fd), 0, kMessageBytesMax, *this)) {
  connection_->start();
  connection_->send(Heartbeat{});
  schedule_heartbeat();
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "control");
    io_.run();
  });
}

void Client::start(MemberHandler& handler) {
  asio::post(io_, [this, &handler] {
    ENSURE(handler_ == nullptr, "a client is started once");
    handler_ = &handler;
    for (const MemberEvent& each : std::exchange(early_events_, {})) {
      handle(each);
    }
  });
}

Client::~Client() {
  asio::post(io_, [this] { shut_down(); });
  thread_.join();
}

void Client::shut_down() {
  shutting_down_ = true;
  heartbeat_timer_.cancel();
  gets_.end_connection();
  if (lost_) {
    io_.stop();
    return;
  }
  connection_->finish();
  flush_timer_.expires_after(kFlushTimeout);
  flush_timer_.async_wait([this](const error_code&) { io_.stop(); });
}

void Client::schedule_heartbeat() {
  heartbeat_timer_.expires_after(kHeartbeatInterval);
  heartbeat_timer_.async_wait([this](const error_code& error) {
    if (!error && !lost_ && !shutting_down_) {
      connection_->send(Heartbeat{});
      schedule_heartbeat();
    }
  });
}

void Client::on_message(Connection&, Message message) {
  if (const auto* value = std::get_if<StoreValue>(&message)) {
    gets_.answer(*value);
  } else {
    handle(event::Received{std::move(message)});
  }
}

void Client::on_closed(Connection&, const std::string&) {
  lost_ = true;
  gets_.end_connection();
  if (shutting_down_) {
    io_.stop();
  } else {
    handle(event::CoordinatorLost{});
    handle(event::CoordinatorGivenUp{});
  }
}

void Client::handle(const MemberEvent& each) {
  if (shutting_down_) {
    return;
  }
  if (handler_ == nullptr) {
    early_events_.push_back(each);
    return;
  }
  for (MemberEffect& one : machine_.handle(each)) {
    std::visit([this](auto& which) { apply(which); }, one);
  }
}

void Client::apply(effect::RunView& run) {
  if (value(run.view.id) > 0) {
    gets_.end_views_up_to(ViewId{value(run.view.id) - 1});
  }
  handler_->run_view(run.view);
}

void Client::apply(effect::AbortGroup& abort) {
  gets_.end_views_up_to(abort.view);
  handler_->abort_group(abort.view);
}

Result<void> Client::store_set(ViewId view, const std::string& key, ByteSpan value) {
  if (lost_) {
    return Error{Errc::kPeerLost, "the connection to the coordinator is lost"};
  }
  post_message(StoreSet{view, key, Bytes(value.begin(), value.end())});
  return {};
}

Result<Bytes> Client::store_get(ViewId view, const std::string& key, Instant deadline) {
  ENSURE(std::this_thread::get_id() != thread_.get_id(), "the control thread must not wait");
  if (Result<void> expected = gets_.expect(view, key); !expected.ok()) {
    return std::move(expected).error();
  }
  post_message(StoreGet{view, key});
  return gets_.wait(view, key, deadline);
}

/// True if another attempt may succeed: nobody listens yet, or the coordinator is being restarted.
bool is_worth_a_retry(const Error& error) {
  return error.code == Errc::kPeerLost || error.code == Errc::kIo;
}

}  // namespace

Result<std::unique_ptr<MemberClient>> connect_member(const MemberClientOptions& options,
                                                     Instant deadline) {
  while (true) {
    Hello hello;
    hello.address = options.address;
    hello.fingerprint = options.fingerprint;
    Result<OpenSession> session =
        open_session(options.endpoint, options.token, std::move(hello), deadline);
    if (session.ok()) {
      return std::unique_ptr<MemberClient>(std::make_unique<Client>(std::move(session).value()));
    }
    const bool time_left = monotonic_now() + kConnectRetryDelay < deadline;
    if (!time_left || !is_worth_a_retry(session.error())) {
      return std::move(session).error();
    }
    std::this_thread::sleep_for(kConnectRetryDelay);
  }
}

}  // namespace mayfly::elastic
