#include "collectives/tcp/tcp_formation.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <optional>

#include "collectives/ring_group.hpp"
#include "collectives/tcp/sockets.hpp"

namespace mayfly::collectives {
namespace {

// A member sends one hello per view; more waiting connections than this are strangers' or
// leftovers.
constexpr std::size_t kWaitingMax = 64;
// How soon to try again when the next member's queue of connections is full.
constexpr int kRetryMs = 2;

class TcpFormation {
 public:
  TcpFormation(const GroupSpec& spec, TcpDoor& door, const AbortSignal& signal)
      : spec_(spec),
        door_(door),
        signal_(signal),
        neighbours_(neighbours_of(spec.peers, spec.rank)) {}

  Result<TcpLinkSockets> run(Instant deadline) {
    Result<TcpAddress> next = parse_tcp_address(spec_.peers[next_rank()].address);
    if (!next.ok()) {
      return next.error();
    }
    while (!sockets_.to_next.valid() || !sockets_.from_previous.valid()) {
      if (signal_.raised()) {
        return Error{Errc::kAborted, fmt::format("view {} was given up", value(spec_.view))};
      }
      if (monotonic_now() >= deadline) {
        return late();
      }
      if (Result<void> advanced = advance(next.value(), deadline); !advanced.ok()) {
        return advanced.error();
      }
    }
    return std::move(sockets_);
  }

 private:
  [[nodiscard]] std::uint32_t size() const {
    return static_cast<std::uint32_t>(spec_.peers.size());
  }
  [[nodiscard]] std::uint32_t next_rank() const { return (value(spec_.rank) + 1) % size(); }
  [[nodiscard]] std::uint32_t previous_rank() const {
    return (value(spec_.rank) + size() - 1) % size();
  }
  [[nodiscard]] Hello hello(std::uint32_t from, std::uint32_t to) const {
    return {kHelloMagic, value(spec_.view), spec_.key, from, to};
  }

  Error late() const {
    const MemberId who = sockets_.from_previous.valid() ? neighbours_.next : neighbours_.previous;
    return {Errc::kDeadline, fmt::format("member {} did not connect in time", value(who)), who};
  }

  // One round: look at everything that can be done, then sleep until more can be.
  Result<void> advance(const TcpAddress& next, Instant deadline) {
    admit();
    if (!sockets_.from_previous.valid()) {
      pick_previous();
    }
    if (!sockets_.to_next.valid() && !outgoing_) {
      if (Result<void> started = start_outgoing(next); !started.ok()) {
        return started;
      }
    }
    if (sockets_.to_next.valid() && sockets_.from_previous.valid()) {
      return {};
    }
    return sleep(deadline);
  }

  void admit() {
    for (const int listener : {door_.tcp.get(), door_.unix_domain.get()}) {
      while (listener >= 0) {
        UniqueFd fd = accept_one(listener);
        if (!fd.valid()) {
          break;
        }
        if (door_.waiting.size() == kWaitingMax) {
          door_.waiting.erase(door_.waiting.begin());
        }
        door_.waiting.emplace_back(std::move(fd));
      }
    }
  }

  // Answers every complete hello of this view and of older ones; the newest welcome counts, since
  // an earlier one can be left from an attempt that the previous member has given up.
  void pick_previous() {
    const Hello expected = hello(previous_rank(), value(spec_.rank));
    std::vector<Incoming> still_waiting;
    for (Incoming& incoming : door_.waiting) {
      if (!incoming.receive()) {
        continue;
      }
      const std::optional<Hello> said = incoming.hello();
      const std::optional<Verdict> verdict = said ? judge(*said, expected) : std::nullopt;
      if (!verdict) {
        still_waiting.push_back(std::move(incoming));
      } else if (incoming.answer(*verdict) && *verdict == Verdict::kWelcome) {
        sockets_.from_previous = incoming.take();
      }
    }
    door_.waiting = std::move(still_waiting);
  }

  Result<void> start_outgoing(const TcpAddress& next) {
    const bool is_local = !next.unix_name.empty() && !next.host_id.empty() &&
                          next.host_id == door_.host_id && door_.unix_domain.valid();
    Result<UniqueFd> fd =
        is_local ? start_connect_unix(next.unix_name) : start_connect_tcp(next.host, next.port);
    if (!fd.ok()) {
      return with_culprit(fd.error());
    }
    if (fd.value().valid()) {
      outgoing_.emplace(std::move(fd).value(), hello(value(spec_.rank), next_rank()));
    }
    return {};
  }

  Error with_culprit(Error error) const {
    error.detail = fmt::format("member {}: {}", value(neighbours_.next), error.detail);
    if (error.code == Errc::kPeerLost) {
      error.culprit = neighbours_.next;
    }
    return error;
  }

  Result<void> sleep(Instant deadline) {
    std::vector<pollfd> watched;
    watched.push_back({.fd = outgoing_ ? outgoing_->fd() : -1,
                       .events = outgoing_ ? outgoing_->events() : short{0},
                       .revents = 0});
    for (const int fd : {signal_.fd(), door_.tcp.get(), door_.unix_domain.get()}) {
      watched.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    }
    for (const Incoming& incoming : door_.waiting) {
      // A connection that waits for a newer view has nothing more to say.
      watched.push_back(
          {.fd = incoming.hello() ? -1 : incoming.fd(), .events = POLLIN, .revents = 0});
    }
    const bool retry = !outgoing_ && !sockets_.to_next.valid();
    const int timeout = poll_timeout_ms(deadline);
    if (::poll(watched.data(), watched.size(), retry ? std::min(timeout, kRetryMs) : timeout) <=
            0 ||
        watched[0].revents == 0) {
      return {};
    }
    const Result<bool> welcome = outgoing_->advance();
    if (!welcome.ok()) {
      return with_culprit(welcome.error());
    }
    if (welcome.value()) {
      sockets_.to_next = outgoing_->take();
      outgoing_.reset();
    }
    return {};
  }

  const GroupSpec& spec_;
  TcpDoor& door_;
  const AbortSignal& signal_;
  const RingNeighbours neighbours_;
  std::optional<Outgoing> outgoing_;  // until it is welcome
  TcpLinkSockets sockets_;
};

}  // namespace

Result<TcpLinkSockets> connect_ring(const GroupSpec& spec, TcpDoor& door, const AbortSignal& signal,
                                    Instant deadline) {
  return TcpFormation(spec, door, signal).run(deadline);
}

}  // namespace mayfly::collectives
