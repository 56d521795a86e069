#include "collectives/tcp/pending_connections.hpp"

#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/net/sockets.hpp"

namespace mayfly::collectives {
namespace {

// How soon somebody who is late is found out.
constexpr int kSweepMs = 500;

bool says_nothing_yet(const PendingConnection& pending) {
  return !pending.incoming.hello().has_value();
}

}  // namespace

PendingConnections::PendingConnections(UniqueFd tcp, UniqueFd unix_domain)
    : tcp_(std::move(tcp)), unix_domain_(std::move(unix_domain)), keeper_([this] { keep(); }) {}

PendingConnections::~PendingConnections() {
  wake_.notify();
  keeper_.join();
}

void PendingConnections::receive(Instant now) {
  has_no_descriptors_ = false;
  for (const int listener : {tcp_.get(), unix_domain_.get()}) {
    if (listener >= 0) {
      accept_all(listener, now);
    }
  }
  std::erase_if(waiting_, [&](PendingConnection& pending) { return must_close(pending, now); });
}

short PendingConnections::events() const {
  return has_no_descriptors_ ? short{0} : short{POLLIN};
}

void PendingConnections::accept_all(int listener, Instant now) {
  // Bounded: a flood must not keep a forming thread in here.
  const AcceptEnd end = accept_waiting(listener, kPendingMax, [&](UniqueFd fd) {
    std::string who = peer_name(fd.get());
    PendingConnection pending{Incoming(std::move(fd)), std::move(who), now};
    // Its hello is here already, as a rule; whoever has said it is the last to be thrown out.
    if (must_close(pending, now)) {
      return;
    }
    if (waiting_.size() == kPendingMax) {
      make_place();
    }
    waiting_.push_back(std::move(pending));
  });
  has_no_descriptors_ = has_no_descriptors_ || end == AcceptEnd::kNoDescriptors;
}

/// Who has waited longest without a word has the least claim, then who has waited longest.
void PendingConnections::make_place() {
  auto place = std::find_if(waiting_.begin(), waiting_.end(), says_nothing_yet);
  place = place == waiting_.end() ? waiting_.begin() : place;
  log_.turned_away(place->who, "too many connections that wait for a view");
  waiting_.erase(place);
}

bool PendingConnections::must_close(PendingConnection& pending, Instant now) {
  const char* why = nullptr;
  const bool is_here = pending.incoming.receive();
  const std::optional<Hello> said = pending.incoming.hello();
  if (!is_here && said && said->magic == kHelloMagic) {
    return true;  // a member that has given up its view; nothing to tell
  }
  if (!is_here) {
    why = said ? "it does not speak our protocol" : "it closed the connection without a hello";
  } else if (!said && now - pending.since > kHelloTimeout) {
    why = "no hello in time";
  } else if (said && now - pending.since > kAnswerTimeout) {
    why = "its view was not formed here in time";
  }
  if (why != nullptr) {
    log_.turned_away(pending.who, why);
  }
  return why != nullptr;
}

void PendingConnections::keep() {
  ::pthread_setname_np(::pthread_self(), "pending");
  // Only sockets that stay open: waiting ones' may be closed by who is inside meanwhile.
  std::array<pollfd, 3> polled{};
  while (true) {
    int timeout = -1;
    {
      const std::unique_lock inside = enter();
      receive(monotonic_now());
      timeout = has_no_descriptors_ ? static_cast<int>(to_ms(kAcceptRetryDelay))
                : waiting_.empty()  ? -1
                                    : kSweepMs;
      polled = {{{wake_.fd(), POLLIN, 0}, {tcp_fd(), events(), 0}, {unix_fd(), events(), 0}}};
    }
    (void)::poll(polled.data(), polled.size(), timeout);
    if ((polled[0].revents & POLLIN) != 0) {
      return;
    }
  }
}

}  // namespace mayfly::collectives
