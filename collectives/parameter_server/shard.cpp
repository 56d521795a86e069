#include "collectives/parameter_server/shard.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.hpp"
#include "base/log.hpp"
#include "base/net/accept.hpp"
#include "base/net/sockets.hpp"
#include "base/try_assign.hpp"
#include "collectives/parameter_server/shard_loop.hpp"
#include "collectives/tcp/tcp_address.hpp"

namespace mayfly::parameter_server {
namespace {

constexpr std::size_t kUnauthenticatedMax = 64;
constexpr std::size_t kFixed = 4;  // descriptors before those of the sessions

}  // namespace

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
      serve(*sessions_[i - kFixed], polled[i].revents);
    }
    if (link_) {
      link_->serve(polled[3].revents);
    }
    acknowledge();
    release();
    tidy();
    check_quiet();
    publish_facts();
  }
  close_all();
}

/// Not what others wake us with: they may do so as long as there is a shard.
void ShardLoop::close_all() {
  sessions_.clear();
  link_.reset();
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
  polled.push_back({link_ ? link_->fd() : -1, link_ ? link_->events() : short{0}, 0});
  for (const auto& session : sessions_) {
    const bool reads = !session->hello.has_value();  // not before it is admitted
    const int events = (reads ? POLLIN : 0) | (session->stream.wants_to_send() ? POLLOUT : 0);
    polled.push_back({session->stream.fd(), static_cast<short>(events), 0});
  }
  constexpr int kForEver = -1;
  std::optional<Instant> deadline = link_ ? link_->deadline() : std::nullopt;
  if (has_no_descriptors_) {
    const Instant again = monotonic_now() + kAcceptRetryDelay;
    deadline = std::min(deadline.value_or(again), again);
  }
  (void)::poll(polled.data(), polled.size(), deadline ? poll_timeout_ms(*deadline) : kForEver);
}

void ShardLoop::accept_all(int listener) {
  // A bound for each turn: a flood must not keep the shard from its other connections.
  const AcceptEnd end = accept_waiting(listener, kUnauthenticatedMax, [this](UniqueFd fd) {
    make_room();
    sessions_.push_back(std::make_unique<Session>(MessageStream(
        std::move(fd), std::max<std::uint64_t>(payload_bytes_, kRosterBytesMax), &spare_copy_)));
  });
  has_no_descriptors_ = has_no_descriptors_ || end == AcceptEnd::kNoDescriptors;
}

/// Connections that nobody answers for must not keep out who has something to say: the oldest one
/// ends, above all one that has not said hello. A worker comes again.
void ShardLoop::make_room() {
  std::vector<Session*> strangers;
  for (const auto& session : sessions_) {
    if (!session->worker && !session->is_leader && !session->over) {
      strangers.push_back(session.get());
    }
  }
  if (strangers.size() >= kUnauthenticatedMax) {
    const auto silent =
        std::ranges::find_if(strangers, [](const Session* session) { return !session->hello; });
    (silent == strangers.end() ? strangers.front() : *silent)->over = true;
  }
}

void ShardLoop::take_orders() {
  std::vector<std::optional<ShardView>> orders;
  {
    const std::lock_guard lock(mutex_);
    orders.swap(orders_);
  }
  for (const std::optional<ShardView>& order : orders) {
    if (order) {
      meet(*order);
    } else {
      begin_hold();
    }
  }
}

/// What cannot be refused: only pushes can.
void ShardLoop::begin_hold() {
  if (role_ == ShardRole::kLeads && core_.leases() != nullptr) {
    Header header;
    header.type = MessageType::kHold;
    ENSURE(take({.kind = ShardEventKind::kHold}, header, nullptr).ok(), "anybody may be held");
    told_quiet_ = false;
  }
}

void ShardLoop::meet(const ShardView& view) {
  view_ = view.view;
  keys_[view.view] = view.key;
  if (role_ == ShardRole::kFollows && view.role == ShardRole::kLeads) {
    begin_to_lead();
  }
  if (role_ == ShardRole::kLeads) {
    follow_up(view);
    // Before any worker is let in: it must be known which workers may be given work.
    workers_ = view.workers;
    speeds_.set_workers(view.workers);
    Header header;
    header.type = MessageType::kRoster;
    ShardEvent event{.kind = ShardEventKind::kWorkers, .workers = view.workers};
    ENSURE(take(event, header, nullptr).ok(), "any workers are met");
    told_quiet_ = true;
  }
  admit();
}

bool ShardLoop::is_admissible(const Header& hello) const {
  const auto key = keys_.find(ViewId{hello.view});
  if (key == keys_.end() || key->second != hello.key) {
    return false;
  }
  return hello.type == MessageType::kFollow
             ? role_ == ShardRole::kFollows && hello.shard == options_.number
             : role_ == ShardRole::kLeads && workers_.contains(MemberId{hello.worker});
}

/// A worker that says hello before its view is known here waits.
void ShardLoop::admit() {
  for (std::size_t i = 0; i < sessions_.size(); ++i) {
    Session& session = *sessions_[i];
    if (!session.hello || session.over) {
      continue;
    }
    if (is_admissible(*session.hello)) {
      admit(session);
    } else {
      session.over = ViewId{session.hello->view} <= view_;
    }
  }
}

void ShardLoop::admit(Session& session) {
  const Header hello = *std::exchange(session.hello, std::nullopt);
  if (hello.type == MessageType::kFollow) {
    admit_leader(session);
    return;
  }
  const MemberId worker{hello.worker};
  if (Session* before = session_of(worker)) {
    before->over = true;
    before->worker.reset();
  }
  session.worker = worker;
  share(session);
  Header welcome;
  welcome.type = MessageType::kWelcome;
  welcome.flags = session.slots != nullptr ? flags::kShares : 0;
  welcome.worker = hello.worker;
  welcome.shard = options_.number;
  session.stream.send(welcome);
  if (const Result<void> taken = take(event_of(hello), hello, nullptr); !taken.ok()) {
    close(session, taken.error().detail);
  }
}

/// Uses the memory that came along with the greeting. What is none of ours is not used: payloads go
/// through the socket.
void ShardLoop::share(Session& session) {
  const UniqueFd memory = session.stream.take_descriptor();
  if (!memory.valid() || payload_bytes_ == 0) {
    return;
  }
  Result<std::shared_ptr<SharedSlots>> mapped = SharedSlots::map(memory.get(), payload_bytes_);
  if (mapped.ok()) {
    session.slots = std::move(mapped).value();
  } else {
    log::info(fmt::format("shard {}: worker {}: {}", options_.number, value(*session.worker),
                          mapped.error().detail));
  }
}

Session* ShardLoop::session_of(MemberId worker) {
  for (const auto& session : sessions_) {
    if (session->worker == worker && !session->over) {
      return session.get();
    }
  }
  return nullptr;
}

void ShardLoop::serve(Session& session, short events) {
  if (session.over || events == 0) {
    return;
  }
  if (session.hello && (events & (POLLHUP | POLLERR)) != 0) {
    session.over = true;  // gone before its view came
    return;
  }
  if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && !session.hello) {
    const Result<void> received =
        session.stream.receive([&](const Header& header) { return expect(session, header); },
                               [&](const Header& header) {
                                 own_facts_.bytes_in += kHeaderBytes + header.payload_bytes;
                                 return handle(session, header);
                               });
    if (!received.ok()) {
      close(session, received.error().detail);
    }
  }
}

void ShardLoop::close(Session& session, const std::string& why) {
  if (session.worker) {
    log::info(fmt::format("shard {}: worker {}: {}", options_.number, value(*session.worker), why));
  }
  session.over = true;
}

/// Sends what there is to send, and forgets connections that are over.
void ShardLoop::tidy() {
  for (const auto& session : sessions_) {
    if (!session->over && session->stream.wants_to_send()) {
      if (const Result<void> sent = session->stream.flush(); !sent.ok()) {
        close(*session, sent.error().detail);
      }
    }
  }
  std::erase_if(sessions_, [](const auto& session) { return session->over; });
  // A leader of ours waits for nobody here: two servers that follow each other would never end.
  connections_ = static_cast<std::size_t>(std::count_if(
      sessions_.begin(), sessions_.end(), [](const auto& session) { return !session->is_leader; }));
}

PushedSum ShardLoop::take_buffer() {
  if (spare_.empty()) {
    return {AlignedBuffer<float>(payload_bytes_ / sizeof(float)), {}};
  }
  PushedSum buffer{std::move(spare_.back()), {}};
  spare_.pop_back();
  return buffer;
}

Result<std::unique_ptr<Shard>> Shard::start(const ShardOptions& options, const SyncPlan& plan,
                                            ShardState& state, ShardListener& listener) {
  auto loop = std::make_unique<ShardLoop>(options, plan, state, listener);
  TRY(loop->listen());
  loop->begin();
  return Result<std::unique_ptr<Shard>>(std::move(loop));
}

}  // namespace mayfly::parameter_server
