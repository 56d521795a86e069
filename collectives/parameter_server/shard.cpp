#include "collectives/parameter_server/shard.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.hpp"
#include "base/log.hpp"
#include "base/net/accept.hpp"
#include "base/net/sockets.hpp"
#include "base/net/wake_up.hpp"
#include "base/try_assign.hpp"
#include "collectives/parameter_server/followed_leader.hpp"
#include "collectives/parameter_server/replica_link.hpp"
#include "collectives/parameter_server/shard_replica.hpp"
#include "collectives/parameter_server/shard_sessions.hpp"
#include "collectives/tcp/tcp_address.hpp"

namespace mayfly::parameter_server {
namespace {

// The thread of a Shard: waits for its sockets and for orders, and passes on messages and orders.
class ShardLoop final : public Shard {
 public:
  ShardLoop(const ShardOptions& options, const SyncPlan& plan, ShardState& state,
            ShardListener& listener)
      : options_(options),
        listener_(listener),
        replica_(options, plan, state, listener),
        sessions_(options, state.values().size_bytes()) {
    facts_.leads = replica_.leads();
    if (!replica_.leads()) {
      leader_.emplace(options.number, state.values().size_bytes());
    } else if (options.has_follower) {
      follower_.emplace(
          options.number, options.payload_hashes,
          ReplicaLink::Handlers{
              .on_taken = [this](std::uint64_t entry) { return replica_.taken(entry); },
              .on_unreachable = [this] { listener_.on_unreachable(follower_id_); }});
    }
  }
  ~ShardLoop() override { ShardLoop::stop(); }

  Result<void> listen();
  void begin() {
    thread_ = std::thread([this] { run(); });
  }

  const std::string& address() const override { return address_; }
  void set_view(ShardView view) override { order(std::move(view)); }
  void hold() override { order(std::nullopt); }
  ShardFacts facts() const override {
    const std::lock_guard lock(mutex_);
    return facts_;
  }
  bool has_connections() const override { return connections_ > 0; }
  void stop() override {
    stopping_ = true;
    wake_.notify();
    if (thread_.joinable()) {
      thread_.join();
    }
  }

 private:
  using Order = std::optional<ShardView>;  // nothing: an order to hold

  void order(Order order);

  // Used by the thread only:
  void run();
  void close_all();
  void wait_for_events(std::vector<pollfd>& polled);
  void accept_all(int listener);
  void take_orders();
  void hold_steps();
  void begin_view(const ShardView& view);
  void begin_to_lead();
  void set_follower(const ShardView& view);
  void admit();
  Result<PayloadTarget> expect(Session& session, const Header& header);
  Result<void> handle(Session& session, const Header& header);
  Result<void> handle_worker(Session& session, const Header& header);
  Result<void> handle_leader(const Header& header);
  void take_order(const ShardEvent& event);
  Result<void> take(const ShardEvent& event, const Header& message, PushedSum gradient = {});
  void release();
  void acknowledge();
  void publish_facts();

  const ShardOptions options_;
  ShardListener& listener_;
  UniqueFd tcp_;
  UniqueFd unix_;
  const WakeUp wake_;
  std::string address_;
  std::atomic<bool> stopping_ = false;
  std::atomic<std::size_t> connections_ = 0;

  mutable std::mutex mutex_;
  std::vector<Order> orders_;  // guarded by mutex_
  ShardFacts facts_;           // guarded by mutex_

  // Used by the thread only:
  ShardReplica replica_;
  ShardSessions sessions_;
  std::optional<FollowedLeader> leader_;  // while we follow
  std::optional<ReplicaLink> follower_;   // of a leader, while it has one
  MemberId follower_id_{};                // if there is a follower: its server
  bool has_no_descriptors_ = false;       // no descriptors are left for waiting connections
  ShardFacts own_facts_;
  std::thread thread_;
};

constexpr std::size_t kFixed = 4;  // descriptors before those of the sessions

Result<void> ShardLoop::listen() {
  TRY_ASSIGN(tcp_, listen_tcp({options_.host, 0}));
  const Endpoint bound = bound_endpoint(tcp_.get());
  collectives::TcpAddress address;
  address.host = bound.host;
  address.port = bound.port;
  const std::string name = fmt::format("@mayfly-ps-{}-{}", ::getpid(), address.port);
  if (Result<UniqueFd> local = listen_unix(name); local.ok()) {
    unix_ = std::move(local).value();
    address.unix_name = name;
    address.host_id = collectives::this_host_id();
  }
  address_ = collectives::to_string(address);
  return {};
}

void ShardLoop::order(Order order) {
  {
    const std::lock_guard lock(mutex_);
    orders_.push_back(std::move(order));
  }
  wake_.notify();
}

void ShardLoop::run() {
  pthread_setname_np(pthread_self(), fmt::format("shard-{}", options_.number).c_str());
  std::vector<pollfd> polled;
  while (!stopping_) {
    wait_for_events(polled);
    wake_.clear();
    take_orders();
    has_no_descriptors_ = false;
    accept_all(tcp_.get());
    if (unix_.valid()) {
      accept_all(unix_.get());
    }
    for (std::size_t i = kFixed; i < polled.size(); ++i) {
      Session& session = *sessions_.all()[i - kFixed];
      session.serve(
          polled[i].revents, [&](const Header& header) { return expect(session, header); },
          [&](const Header& header) { return handle(session, header); });
    }
    if (follower_) {
      follower_->serve(polled[3].revents);
    }
    acknowledge();
    release();
    sessions_.end_late(monotonic_now());
    sessions_.flush();
    // The connection to a leader that this shard follows does not count: two servers that follow
    // each other would wait for each other and never end.
    connections_ = sessions_.except_leader();
    replica_.report_rest(sessions_.view());
    publish_facts();
  }
  close_all();
}

/// Does not close wake_, which other threads may use as long as the Shard exists.
void ShardLoop::close_all() {
  sessions_.clear();
  follower_.reset();
  tcp_ = UniqueFd();
  unix_ = UniqueFd();
  connections_ = 0;
}

void ShardLoop::wait_for_events(std::vector<pollfd>& polled) {
  polled.clear();
  polled.push_back({wake_.fd(), POLLIN, 0});
  const short listens = has_no_descriptors_ ? short{0} : short{POLLIN};
  polled.push_back({tcp_.get(), listens, 0});
  polled.push_back({unix_.valid() ? unix_.get() : -1, listens, 0});
  polled.push_back(
      {follower_ ? follower_->fd() : -1, follower_ ? follower_->events() : short{0}, 0});
  for (const auto& session : sessions_.all()) {
    polled.push_back({session->fd(), session->events(), 0});
  }
  std::optional<Instant> until = sessions_.next_late();
  if (const std::optional<Instant> next = follower_ ? follower_->deadline() : std::nullopt) {
    until = std::min(until.value_or(*next), *next);
  }
  if (has_no_descriptors_) {
    const Instant retry = monotonic_now() + kAcceptRetryDelay;
    until = std::min(until.value_or(retry), retry);
  }
  constexpr int kForEver = -1;
  const int timeout_ms = until ? poll_timeout_ms(*until) : kForEver;
  (void)::poll(polled.data(), polled.size(), timeout_ms);
}

/// Accepts at most as many connections at a time as there may be strangers: a flood must not keep
/// the shard from its other connections.
void ShardLoop::accept_all(int listener) {
  const AcceptEnd end =
      accept_waiting(listener, ShardSessions::kStrangersMax,
                     [this](UniqueFd socket) { sessions_.add(std::move(socket)); });
  has_no_descriptors_ = has_no_descriptors_ || end == AcceptEnd::kNoDescriptors;
}

void ShardLoop::take_orders() {
  std::vector<Order> orders;
  {
    const std::lock_guard lock(mutex_);
    orders.swap(orders_);
  }
  for (const Order& order : orders) {
    if (order) {
      begin_view(*order);
    } else {
      hold_steps();
    }
  }
}

void ShardLoop::hold_steps() {
  if (replica_.leads() && replica_.is_first()) {
    take_order({.kind = ShardEventKind::kHold});
  }
}

void ShardLoop::begin_view(const ShardView& view) {
  if (!replica_.leads() && view.role == ShardRole::kLeads) {
    begin_to_lead();
  }
  if (replica_.leads()) {
    set_follower(view);
    // Before any worker is admitted, because the table of leases must know the workers.
    take_order({.kind = ShardEventKind::kWorkers, .workers = view.workers});
  }
  sessions_.set_view(view, replica_.role());
  admit();
}

/// From now on the old leader gets no acknowledgement from this server. So it cannot send any
/// output that depends on entries which this server lacks, and those entries have no effect.
void ShardLoop::begin_to_lead() {
  sessions_.end_leader();
  leader_.reset();
  replica_.begin_to_lead();
  if (replica_.is_first()) {
    take_order({.kind = ShardEventKind::kStragglers});  // empty: nothing is measured yet
  }
  listener_.on_lead(replica_.version().version);
}

/// Sets a leader's follower; without a follower no output is held back.
void ShardLoop::set_follower(const ShardView& view) {
  if (!follower_) {
    return;
  }
  if (view.follower.empty()) {
    replica_.lose_follower();
    follower_.reset();
    listener_.on_alone(replica_.version().version);
    release();
    return;
  }
  follower_id_ = view.follower_id;
  if (Result<void> known = follower_->set_view(view.view, view.key, view.follower); !known.ok()) {
    log::warning(fmt::format("shard {}: {}", options_.number, known.error().detail));
  }
}

void ShardLoop::admit() {
  while (Session* session = sessions_.admit_next()) {
    if (session->is_leader()) {
      session->send(leader_->welcome());
      continue;
    }
    const Header& hello = session->greeting();
    if (const Result<void> taken = take(event_of(hello), hello); !taken.ok()) {
      session->fail(taken.error().detail);
    }
  }
}

Result<PayloadTarget> ShardLoop::expect(Session& session, const Header& header) {
  return session.is_leader() ? leader_->expect(header, replica_.gradients())
                             : session.expect(header, replica_.gradients());
}

Result<void> ShardLoop::handle(Session& session, const Header& header) {
  if (session.is_leader()) {
    return handle_leader(header);
  }
  if (session.is_worker()) {
    return handle_worker(session, header);
  }
  session.greet(header);
  admit();
  return {};
}

Result<void> ShardLoop::handle_worker(Session& session, const Header& header) {
  if (MemberId{header.worker} != session.worker()) {
    return Error{Errc::kCorrupt, "a message in the name of another worker"};
  }
  switch (header.type) {
    case MessageType::kPush: {
      if ((header.flags & flags::kAsks) != 0) {
        session.ask(header.question);
      }
      TRY_ASSIGN(PushedSum gradient, session.take_gradient(header));
      return take(event_of(header), header, std::move(gradient));
    }
    case MessageType::kPull: session.ask(header.question); [[fallthrough]];
    case MessageType::kRest: return take(event_of(header), header);
    case MessageType::kStatePull:
      session.send_state(replica_.version(), replica_.values(), replica_.momentum(),
                         header.question, replica_.gate());
      return {};
    case MessageType::kBye: listener_.on_over(); return {};
    default: return Error{Errc::kCorrupt, "a message that workers do not send"};
  }
}

Result<void> ShardLoop::handle_leader(const Header& header) {
  TRY_ASSIGN(std::optional<FollowedLeader::Entry> entry, leader_->take(header));
  if (!entry) {
    return {};
  }
  Result<void> taken = take(entry->event, header, std::move(entry->gradient));
  if (!taken.ok() && header.type == MessageType::kPush) {
    listener_.on_diverged(taken.error().detail);
  }
  return taken;
}

/// Only events that a worker causes can be rejected.
void ShardLoop::take_order(const ShardEvent& event) {
  Header message;
  message.type = order_type(event.kind);
  ENSURE(take(event, message).ok(), "an order is carried out");
}

/// Decides, sends the entry to the follower, and carries out the outcome.
Result<void> ShardLoop::take(const ShardEvent& event, const Header& message, PushedSum gradient) {
  TRY_ASSIGN(ShardReplica::Decision decision, replica_.decide(event, message, std::move(gradient)));
  if (follower_) {
    follower_->send(std::move(decision.entry));
  }
  const ShardOutcome& outcome = decision.outcome;
  for (const MemberId worker : outcome.departed) {
    if (Session* session = sessions_.of(worker)) {
      session->end();  // it is fenced: its messages do not count any more
    }
  }
  if (outcome.restore || outcome.update) {
    sessions_.keep_copies();  // the parameters are about to change
    replica_.change(outcome);
    release();
  }
  replica_.measure(monotonic_now(), event, outcome.grants);
  // A worker without a session gets its leases and parameters when it has connected again.
  for (const Grant& grant : outcome.grants) {
    if (Session* session = sessions_.of(grant.worker)) {
      session->send_lease(grant.lease, replica_.gate());
    }
  }
  for (const MemberId worker : outcome.answers) {
    if (Session* session = sessions_.of(worker)) {
      session->send_parameters(replica_.version().version, replica_.values(), replica_.gate());
    }
  }
  if (event.kind != ShardEventKind::kStragglers) {
    if (const std::optional<ShardEvent> stragglers = replica_.straggler_order()) {
      take_order(*stragglers);
    }
  }
  return {};
}

/// Sends the outputs that the follower's acknowledgement has released.
void ShardLoop::release() {
  sessions_.release(replica_.safe());
  replica_.release();
}

/// One acknowledgement for everything that the leader has sent.
void ShardLoop::acknowledge() {
  if (Session* session = sessions_.leader()) {
    if (const std::optional<Header> taken = leader_->acknowledgement()) {
      session->send(*taken);
    }
  }
}

void ShardLoop::publish_facts() {
  replica_.describe(own_facts_);
  sessions_.count(own_facts_);
  own_facts_.bytes_followed = follower_ ? follower_->bytes_out() : own_facts_.bytes_followed;
  const std::lock_guard lock(mutex_);
  facts_ = own_facts_;
}

}  // namespace

Result<std::unique_ptr<Shard>> Shard::start(const ShardOptions& options, const SyncPlan& plan,
                                            ShardState& state, ShardListener& listener) {
  auto loop = std::make_unique<ShardLoop>(options, plan, state, listener);
  TRY(loop->listen());
  loop->begin();
  return Result<std::unique_ptr<Shard>>(std::move(loop));
}

}  // namespace mayfly::parameter_server
