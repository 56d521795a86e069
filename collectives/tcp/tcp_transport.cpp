#include "collectives/tcp/tcp_transport.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/net/sockets.hpp"
#include "base/net/wake_up.hpp"
#include "base/system_random.hpp"
#include "base/try_assign.hpp"
#include "collectives/queued_group.hpp"
#include "collectives/tcp/tcp_address.hpp"
#include "collectives/tcp/tcp_engine.hpp"
#include "collectives/tcp/tcp_handshake.hpp"

namespace mayfly::collectives {
namespace {

// How soon to connect again when the next member's queue of connections is full.
constexpr int kRetryMs = 2;
// Most connections to one member that it may close without an answer while it is alive: too many
// other connections may have arrived between the request and its answer.
constexpr int kAttemptsMax = 20;
// A host that has answered none of several connections for this time is unreachable. Several are
// needed, because the system repeats the first packet of a connection only after a second: that is
// too late to distinguish a lost packet from a cut network while the other members wait.
constexpr Duration kSilenceMax = milliseconds(1100);
constexpr Duration kNextConnection = milliseconds(300);
constexpr std::size_t kConnectionsMax = 3;  // at once to one member

// Decides which of two members connects.
bool connects(std::size_t from, std::size_t to) {
  return ((from + to) % 2 == 1) == (from < to);
}

// The parts of a transport that every formation uses.
struct TcpListener {
  std::unique_ptr<PendingConnections> pending;  // also for members that are ahead
  std::string host_id;                          // of this host
  bool share_memory = true;                     // with members of this host
  std::size_t mesh_members_max = 16;
};

// Connects one member to the others of a view: to all of them in a small view (a mesh), else to its
// two neighbours in the ring. Of each pair of members one connects and the other waits for it,
// evenly spread.
class TcpFormation {
 public:
  TcpFormation(const GroupSpec& spec, const TcpListener& listener, const AbortSignal& signal)
      : spec_(spec),
        listener_(listener),
        pending_(*listener.pending),
        lock_(pending_.lock()),
        signal_(signal),
        rank_(value(spec.rank)),
        addresses_(spec.peers.size()),
        attempts_(spec.peers.size()),
        unanswered_(spec.peers.size()) {
    connections_.rank = rank_;
    connections_.is_mesh = size() <= listener.mesh_members_max;
    connections_.peers.resize(size());
    for (std::size_t rank = 0; rank < size(); ++rank) {
      connections_.peers[rank].member = spec.peers[rank].member;
    }
  }

  // Fails with kPeerLost or kDeadline (naming the member), kRefused, kInvalidInput (an address that
  // is none) or kAborted.
  Result<TcpConnections> run(Instant deadline) {
    TRY(read_addresses());
    while (const std::optional<std::size_t> missing = first_missing()) {
      if (signal_.raised()) {
        return given_up(spec_.view);
      }
      if (monotonic_now() >= deadline) {
        const MemberId who = spec_.peers[*missing].member;
        return Error{Errc::kDeadline, fmt::format("member {} did not connect in time", value(who)),
                     who};
      }
      TRY(advance(deadline));
    }
    return std::move(connections_);
  }

 private:
  [[nodiscard]] std::size_t size() const { return spec_.peers.size(); }
  [[nodiscard]] bool has_channel(std::size_t rank) const {
    return connections_.peers[rank].channel != nullptr;
  }
  [[nodiscard]] bool is_needed(std::size_t rank) const {
    const bool is_neighbour = (rank + 1) % size() == rank_ || (rank_ + 1) % size() == rank;
    return rank != rank_ && (connections_.is_mesh || is_neighbour);
  }
  [[nodiscard]] std::optional<std::size_t> first_missing() const {
    for (std::size_t rank = 0; rank < size(); ++rank) {
      if (is_needed(rank) && !has_channel(rank)) {
        return rank;
      }
    }
    return std::nullopt;
  }
  [[nodiscard]] Hello hello(std::size_t from, std::size_t to) const {
    return {kHelloMagic, value(spec_.view), spec_.key, static_cast<std::uint32_t>(from),
            static_cast<std::uint32_t>(to)};
  }

  [[nodiscard]] bool has_unix(const TcpAddress& address) const {
    return !address.unix_name.empty() && !address.host_id.empty() &&
           address.host_id == listener_.host_id && pending_.unix_fd() >= 0;
  }

  Result<void> read_addresses() {
    connections_.local_members = 0;
    for (std::size_t rank = 0; rank < size(); ++rank) {
      TRY_ASSIGN(addresses_[rank], parse_tcp_address(spec_.peers[rank].address));
    }
    for (const TcpAddress& address : addresses_) {
      const bool is_local = has_unix(address) || address.host == addresses_[rank_].host;
      connections_.local_members += is_local ? 1 : 0;
    }
    return {};
  }

  // One round: look at everything that can be done, then sleep until more can be.
  Result<void> advance(Instant deadline) {
    const Instant now = monotonic_now();
    pending_.receive(now);
    pick_incoming();
    for (std::size_t rank = 0; rank < size(); ++rank) {
      if (wants_connection(rank, now)) {
        TRY(start_outgoing(rank, now));
      }
    }
    return first_missing() ? sleep(deadline) : Result<void>();
  }

  [[nodiscard]] std::optional<Verdict> verdict_on(const Hello& received) const {
    const bool is_awaited =
        received.from < size() && is_needed(received.from) && !connects(rank_, received.from);
    const std::optional<Verdict> verdict = judge(received, hello(received.from, rank_));
    return verdict == Verdict::kWelcome && !is_awaited ? Verdict::kWrongRank : verdict;
  }

  // Answers every complete hello of this view and of older ones; the newest welcome counts, since
  // an earlier one can be left from an attempt that the other member has given up.
  void pick_incoming() {
    std::vector<PendingConnection> still_waiting;
    for (PendingConnection& pending : pending_.waiting()) {
      const std::optional<Hello> received = pending.incoming.hello();
      const std::optional<Verdict> verdict = received ? verdict_on(*received) : std::nullopt;
      if (!verdict) {
        still_waiting.push_back(std::move(pending));
      } else if (pending.incoming.answer(*verdict) && *verdict == Verdict::kWelcome) {
        connections_.peers[received->from].channel = pending.incoming.take_channel();
      } else if (*verdict == Verdict::kWrongKey || *verdict == Verdict::kWrongRank) {
        pending_.note_refusal(pending, *verdict == Verdict::kWrongKey
                                           ? "it has another key for this view"
                                           : "it is not awaited in this view");
      }
    }
    pending_.waiting() = std::move(still_waiting);
  }

  /// Connections to one member; the first one that is established is used.
  struct Attempts {
    Instant since;  // when the first of them was begun
    std::vector<Outgoing> under_way;

    [[nodiscard]] bool is_connected() const {
      return under_way.size() == 1 && under_way.front().is_connected();
    }
  };

  [[nodiscard]] bool wants_connection(std::size_t rank, Instant now) const {
    if (!is_needed(rank) || !connects(rank_, rank) || has_channel(rank)) {
      return false;
    }
    const Attempts& attempts = attempts_[rank];
    const std::size_t begun = attempts.under_way.size();
    return begun == 0 || (!attempts.is_connected() && begun < kConnectionsMax &&
                          now - attempts.since >= kNextConnection * static_cast<int>(begun));
  }

  Result<void> start_outgoing(std::size_t rank, Instant now) {
    const TcpAddress& to = addresses_[rank];
    bool is_unix = has_unix(to);
    Result<UniqueFd> fd =
        is_unix ? start_connect_unix(to.unix_name) : start_connect_tcp({to.host, to.port});
    if (is_unix && !fd.ok() && fd.error().code == Errc::kUnreachable) {
      // The system forbids it, as SELinux does between containers with the host's network.
      is_unix = false;
      fd = start_connect_tcp({to.host, to.port});
    }
    if (!fd.ok()) {
      return with_culprit(fd.error(), rank);
    }
    if (fd.value().valid()) {
      Attempts& attempts = attempts_[rank];
      attempts.since = attempts.under_way.empty() ? now : attempts.since;
      attempts.under_way.emplace_back(std::move(fd).value(), hello(rank_, rank),
                                      is_unix && listener_.share_memory);
    }
    return {};
  }

  Error with_culprit(Error error, std::size_t rank) const {
    const MemberId who = spec_.peers[rank].member;
    error.detail = fmt::format("member {}: {}", value(who), error.detail);
    if (error.code == Errc::kUnreachable) {
      error.code = Errc::kPeerLost;  // not a host that took packets and left them unanswered
    }
    if (error.code == Errc::kPeerLost) {
      error.culprit = who;
    }
    return error;
  }

  Result<void> sleep(Instant deadline) {
    std::vector<pollfd> watched;
    std::vector<std::pair<std::size_t, int>> connections;  // rank and descriptor of each
    bool retry = false;
    for (std::size_t rank = 0; rank < size(); ++rank) {
      for (const Outgoing& outgoing : attempts_[rank].under_way) {
        watched.push_back({.fd = outgoing.fd(), .events = outgoing.events(), .revents = 0});
        connections.emplace_back(rank, outgoing.fd());
      }
      const bool is_idle = attempts_[rank].under_way.empty();
      retry = retry || (is_needed(rank) && connects(rank_, rank) && is_idle && !has_channel(rank));
    }
    watched.push_back({.fd = signal_.fd(), .events = POLLIN, .revents = 0});
    for (const int fd : {pending_.tcp_fd(), pending_.unix_fd()}) {
      watched.push_back({.fd = fd, .events = pending_.events(), .revents = 0});
    }
    for (const PendingConnection& pending : pending_.waiting()) {
      // A connection that waits for a newer view sends nothing more.
      const int fd = pending.incoming.hello() ? -1 : pending.incoming.fd();
      watched.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    }
    const Instant look_again = monotonic_now() + std::min(kReachInterval, kNextConnection / 3);
    const int timeout = poll_timeout_ms(std::min(deadline, look_again));
    const int ready =
        ::poll(watched.data(), watched.size(), retry ? std::min(timeout, kRetryMs) : timeout);
    if (ready <= 0) {
      return check_reach();
    }
    for (std::size_t i = 0; i < connections.size(); ++i) {
      if (watched[i].revents != 0) {
        TRY(advance_outgoing(connections[i].first, connections[i].second));
      }
    }
    return {};
  }

  // A member that has to connect to this one detects this in the same way.
  Result<void> check_reach() const {
    const Instant now = monotonic_now();
    for (std::size_t rank = 0; rank < size(); ++rank) {
      const Attempts& attempts = attempts_[rank];
      if (attempts.under_way.empty()) {
        continue;
      }
      const bool is_silent = attempts.is_connected()
                                 ? is_unreachable(attempts.under_way.front().fd())
                                 : now - attempts.since >= kSilenceMax;
      if (is_silent) {
        return connections_.peers[rank].unreachable();
      }
    }
    return {};
  }

  Result<void> advance_outgoing(std::size_t rank, int fd) {
    std::vector<Outgoing>& under_way = attempts_[rank].under_way;
    const auto place = std::find_if(under_way.begin(), under_way.end(),
                                    [fd](const Outgoing& one) { return one.fd() == fd; });
    if (place == under_way.end()) {
      return {};  // another connection was established meanwhile
    }
    const Result<bool> welcome = place->advance();
    if (!welcome.ok() && place->was_left_unanswered() && ++unanswered_[rank] < kAttemptsMax) {
      under_way.clear();  // connect again, which fails if the member is lost
      return {};
    }
    if (!welcome.ok()) {
      return with_culprit(welcome.error(), rank);
    }
    if (welcome.value()) {
      connections_.peers[rank].channel = place->take_channel();
      under_way.clear();
    } else if (under_way.size() > 1) {
      Outgoing stands = std::move(*place);
      under_way.clear();
      under_way.push_back(std::move(stands));
    }
    return {};
  }

  const GroupSpec& spec_;
  const TcpListener& listener_;
  PendingConnections& pending_;
  const std::unique_lock<std::mutex> lock_;
  const AbortSignal& signal_;
  const std::size_t rank_;
  std::vector<TcpAddress> addresses_;  // by rank
  std::vector<Attempts> attempts_;     // by rank, until one is welcome
  std::vector<int> unanswered_;        // by rank
  TcpConnections connections_;
};

class TcpTransport final : public Transport {
 public:
  TcpTransport(TcpListener listener, std::string address, DelaySource delay)
      : listener_(std::move(listener)), address_(std::move(address)), delay_(std::move(delay)) {}

  std::string address() const override { return address_; }

  Result<std::unique_ptr<Group>> form(const GroupSpec& spec, Instant deadline) override {
    TRY(check_spec(spec));
    const auto signal = std::make_shared<AbortSignal>();
    const FormingGuard::Entry entry = guard_.enter(spec.view, [signal] { signal->raise(); });
    const auto size = static_cast<std::uint32_t>(spec.peers.size());
    std::unique_ptr<GroupEngine> engine;
    if (size > 1) {
      TRY_ASSIGN(TcpConnections connections, TcpFormation(spec, listener_, *signal).run(deadline));
      std::unique_ptr<TcpEngine> made = make_tcp_engine(std::move(connections), signal);
      TRY_ASSIGN(const std::int32_t crowded,
                 run_first_barrier(*made, made->finds_host_crowded() ? 1 : 0, deadline));
      made->spare_messages(crowded > 0);
      engine = delay_ ? make_delayed_engine(std::move(made), delay_) : std::move(made);
    }
    if (signal->raised()) {
      return given_up(spec.view);
    }
    return make_queued_group(spec.view, spec.rank, size, std::move(engine));
  }

  void give_up_on(ViewId view) noexcept override { guard_.give_up_on(view); }

 private:
  const TcpListener listener_;
  const std::string address_;
  const DelaySource delay_;  // empty: none
  FormingGuard guard_;
};

std::string new_unix_name() {
  return fmt::format("@mayfly-{}-{:016x}", ::getpid(), system_random());
}

// Members of one host are still reachable over TCP, so that a system that refuses Unix-domain
// sockets is not an error.
UniqueFd open_unix_listener(TcpAddress& address) {
  std::string name = new_unix_name();
  Result<UniqueFd> fd = listen_unix(name);
  std::string host_id = this_host_id();
  if (!fd.ok() || host_id.empty()) {
    return {};
  }
  address.unix_name = std::move(name);
  address.host_id = std::move(host_id);
  return std::move(fd).value();
}

}  // namespace

Result<std::unique_ptr<Transport>> make_tcp_transport(const TcpOptions& options) {
  TRY_ASSIGN(UniqueFd tcp, listen_tcp({options.bind_host, 0}));
  const Endpoint bound = bound_endpoint(tcp.get());
  TcpAddress address;
  address.host = bound.host;
  address.port = bound.port;
  if (is_wildcard(address.host)) {
    return Error{Errc::kInvalidInput,
                 "listening on every interface needs an address that others can connect to"};
  }
  UniqueFd unix_domain = options.use_unix ? open_unix_listener(address) : UniqueFd();
  TcpListener listener;
  listener.pending = std::make_unique<PendingConnections>(std::move(tcp), std::move(unix_domain));
  listener.host_id = address.host_id;
  listener.share_memory = options.share_memory;
  listener.mesh_members_max = options.mesh_members_max;
  return std::unique_ptr<Transport>(
      std::make_unique<TcpTransport>(std::move(listener), to_string(address), options.delay));
}

}  // namespace mayfly::collectives
