#include "collectives/tcp/tcp_formation.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

#include "collectives/ring_group.hpp"
#include "collectives/tcp/sockets.hpp"

namespace mayfly::collectives {
namespace {

// How soon to try again when the next member's queue of connections is full.
constexpr int kRetryMs = 2;
// Of connections to one member that it closes without a word, though it lives: too many others may
// have come between us and its answer.
constexpr int kAttemptsMax = 20;

// Which of two members connects.
bool connects(std::size_t from, std::size_t to) {
  return ((from + to) % 2 == 1) == (from < to);
}

class TcpFormation {
 public:
  TcpFormation(const GroupSpec& spec, TcpDoor& door, const AbortSignal& signal)
      : spec_(spec),
        door_(door),
        room_(*door.room),
        inside_(room_.enter()),
        signal_(signal),
        rank_(value(spec.rank)),
        addresses_(spec.peers.size()),
        outgoing_(spec.peers.size()),
        unanswered_(spec.peers.size()) {
    connections_.rank = rank_;
    connections_.is_mesh = size() <= door.mesh_members_max;
    connections_.peers.resize(size());
    for (std::size_t rank = 0; rank < size(); ++rank) {
      connections_.peers[rank].member = spec.peers[rank].member;
    }
  }

  Result<TcpConnections> run(Instant deadline) {
    TRY(read_addresses());
    while (const std::optional<std::size_t> missing = first_missing()) {
      if (signal_.raised()) {
        return Error{Errc::kAborted, fmt::format("view {} was given up", value(spec_.view))};
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
           address.host_id == door_.host_id && room_.unix_fd() >= 0;
  }

  Result<void> read_addresses() {
    connections_.local_members = 0;
    for (std::size_t rank = 0; rank < size(); ++rank) {
      Result<TcpAddress> parsed = parse_tcp_address(spec_.peers[rank].address);
      if (!parsed.ok()) {
        return parsed.error();
      }
      addresses_[rank] = std::move(parsed).value();
    }
    for (const TcpAddress& address : addresses_) {
      const bool is_local = has_unix(address) || address.host == addresses_[rank_].host;
      connections_.local_members += is_local ? 1 : 0;
    }
    return {};
  }

  // One round: look at everything that can be done, then sleep until more can be.
  Result<void> advance(Instant deadline) {
    room_.receive(monotonic_now());
    pick_incoming();
    for (std::size_t rank = 0; rank < size(); ++rank) {
      if (is_needed(rank) && connects(rank_, rank) && !has_channel(rank) && !outgoing_[rank]) {
        TRY(start_outgoing(rank));
      }
    }
    return first_missing() ? sleep(deadline) : Result<void>();
  }

  [[nodiscard]] std::optional<Verdict> verdict_on(const Hello& said) const {
    const bool is_awaited =
        said.from < size() && is_needed(said.from) && !connects(rank_, said.from);
    const std::optional<Verdict> verdict = judge(said, hello(said.from, rank_));
    return verdict == Verdict::kWelcome && !is_awaited ? Verdict::kWrongRank : verdict;
  }

  // Answers every complete hello of this view and of older ones; the newest welcome counts, since
  // an earlier one can be left from an attempt that the other member has given up.
  void pick_incoming() {
    std::vector<PendingConnection> still_waiting;
    for (PendingConnection& pending : room_.waiting()) {
      const std::optional<Hello> said = pending.incoming.hello();
      const std::optional<Verdict> verdict = said ? verdict_on(*said) : std::nullopt;
      if (!verdict) {
        still_waiting.push_back(std::move(pending));
      } else if (pending.incoming.answer(*verdict) && *verdict == Verdict::kWelcome) {
        connections_.peers[said->from].channel = pending.incoming.take_channel();
      } else if (*verdict == Verdict::kWrongKey || *verdict == Verdict::kWrongRank) {
        room_.note_refusal(pending, *verdict == Verdict::kWrongKey
                                        ? "it has another key for this view"
                                        : "it is not awaited in this view");
      }
    }
    room_.waiting() = std::move(still_waiting);
  }

  Result<void> start_outgoing(std::size_t rank) {
    const TcpAddress& to = addresses_[rank];
    const bool is_unix = has_unix(to);
    Result<UniqueFd> fd =
        is_unix ? start_connect_unix(to.unix_name) : start_connect_tcp(to.host, to.port);
    if (!fd.ok()) {
      return with_culprit(fd.error(), rank);
    }
    if (fd.value().valid()) {
      outgoing_[rank].emplace(std::move(fd).value(), hello(rank_, rank),
                              is_unix && door_.share_memory);
    }
    return {};
  }

  Error with_culprit(Error error, std::size_t rank) const {
    const MemberId who = spec_.peers[rank].member;
    error.detail = fmt::format("member {}: {}", value(who), error.detail);
    if (error.code == Errc::kPeerLost) {
      error.culprit = who;
    }
    return error;
  }

  Result<void> sleep(Instant deadline) {
    std::vector<pollfd> watched;
    bool retry = false;
    for (std::size_t rank = 0; rank < size(); ++rank) {
      const bool under_way = outgoing_[rank].has_value();
      watched.push_back({.fd = under_way ? outgoing_[rank]->fd() : -1,
                         .events = under_way ? outgoing_[rank]->events() : short{0},
                         .revents = 0});
      retry =
          retry || (is_needed(rank) && connects(rank_, rank) && !under_way && !has_channel(rank));
    }
    watched.push_back({.fd = signal_.fd(), .events = POLLIN, .revents = 0});
    for (const int fd : {room_.tcp_fd(), room_.unix_fd()}) {
      watched.push_back({.fd = fd, .events = room_.events(), .revents = 0});
    }
    for (const PendingConnection& pending : room_.waiting()) {
      // A connection that waits for a newer view has nothing more to say.
      const int fd = pending.incoming.hello() ? -1 : pending.incoming.fd();
      watched.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    }
    const int timeout = poll_timeout_ms(std::min(deadline, monotonic_now() + kReachInterval));
    const int ready =
        ::poll(watched.data(), watched.size(), retry ? std::min(timeout, kRetryMs) : timeout);
    if (ready <= 0) {
      return check_reach();
    }
    for (std::size_t rank = 0; rank < size(); ++rank) {
      if (watched[rank].revents != 0) {
        TRY(advance_outgoing(rank));
      }
    }
    return {};
  }

  // Who has to connect to us finds out the same way.
  Result<void> check_reach() const {
    for (std::size_t rank = 0; rank < size(); ++rank) {
      if (outgoing_[rank] && is_unreachable(outgoing_[rank]->fd())) {
        return unreachable_peer(connections_.peers[rank]);
      }
    }
    return {};
  }

  Result<void> advance_outgoing(std::size_t rank) {
    const Result<bool> welcome = outgoing_[rank]->advance();
    if (!welcome.ok() && outgoing_[rank]->was_left_unanswered() &&
        ++unanswered_[rank] < kAttemptsMax) {
      outgoing_[rank].reset();  // if it is gone, nobody will listen there
      return {};
    }
    if (!welcome.ok()) {
      return with_culprit(welcome.error(), rank);
    }
    if (welcome.value()) {
      connections_.peers[rank].channel = outgoing_[rank]->take_channel();
      outgoing_[rank].reset();
    }
    return {};
  }

  const GroupSpec& spec_;
  const TcpDoor& door_;
  PendingConnections& room_;
  const std::unique_lock<std::mutex> inside_;
  const AbortSignal& signal_;
  const std::size_t rank_;
  std::vector<TcpAddress> addresses_;              // by rank
  std::vector<std::optional<Outgoing>> outgoing_;  // by rank, until it is welcome
  std::vector<int> unanswered_;                    // by rank
  TcpConnections connections_;
};

}  // namespace

Result<TcpConnections> connect_members(const GroupSpec& spec, TcpDoor& door,
                                       const AbortSignal& signal, Instant deadline) {
  return TcpFormation(spec, door, signal).run(deadline);
}

}  // namespace mayfly::collectives
