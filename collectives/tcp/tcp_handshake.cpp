#include "collectives/tcp/tcp_handshake.hpp"

#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <bit>

#include "base/net/sockets.hpp"
#include "base/system_error.hpp"
#include "collectives/tcp/shm_pipe.hpp"

namespace mayfly::collectives {
namespace {

// How soon a late connection is detected.
constexpr int kSweepMs = 500;

bool says_nothing_yet(const PendingConnection& pending) {
  return !pending.incoming.hello().has_value();
}

}  // namespace

std::optional<Verdict> judge(const Hello& hello, const Hello& expected) {
  if (hello.view > expected.view) {
    return std::nullopt;
  }
  if (hello.view < expected.view) {
    return Verdict::kStaleView;
  }
  if (hello.key != expected.key) {
    return Verdict::kWrongKey;
  }
  const bool same_order = hello.from == expected.from && hello.to == expected.to;
  return same_order ? Verdict::kWelcome : Verdict::kWrongRank;
}

bool Incoming::receive() {
  if (received_ < raw_.size()) {
    const Moved got =
        receive_with_descriptor(fd_.get(), std::span(raw_).subspan(received_), handed_over_);
    if (got.closed) {
      return false;
    }
    received_ += got.bytes;
  }
  if (received_ < raw_.size()) {
    return true;
  }
  // If it is closed, the other side has given up waiting for the answer.
  return hello()->magic == kHelloMagic && !at_end(fd_.get());
}

std::optional<Hello> Incoming::hello() const {
  if (received_ < raw_.size()) {
    return std::nullopt;
  }
  return std::bit_cast<Hello>(raw_);
}

bool Incoming::answer(Verdict verdict) {
  if (verdict == Verdict::kWelcome && handed_over_.valid()) {
    Result<SealedMemory> mapped = SealedMemory::map(handed_over_.get(), kShmChannelBytes);
    if (mapped.ok()) {
      memory_ = std::move(mapped).value();
      verdict = Verdict::kWelcomeShared;
    }
    handed_over_ = {};
  }
  // Four bytes always fit into the buffer of a connection that has carried nothing yet.
  return send_some(fd_.get(), &verdict, sizeof verdict).bytes == sizeof verdict;
}

std::unique_ptr<Channel> Incoming::take_channel() {
  return memory_.valid() ? make_shm_channel(std::move(fd_), std::move(memory_), false)
                         : make_socket_channel(std::move(fd_));
}

Outgoing::Outgoing(UniqueFd fd, const Hello& hello, bool share_memory)
    : fd_(std::move(fd)), hello_(hello) {
  if (share_memory) {
    Result<SealedMemory> made = SealedMemory::create(kShmChannelBytes, to_hand_over_);
    if (made.ok()) {
      memory_ = std::move(made).value();
    }
  }
}

std::unique_ptr<Channel> Outgoing::take_channel() {
  return memory_.valid() ? make_shm_channel(std::move(fd_), std::move(memory_), true)
                         : make_socket_channel(std::move(fd_));
}

short Outgoing::events() const {
  return hello_sent_ ? POLLIN : POLLOUT;
}

Result<bool> Outgoing::advance() {
  if (!hello_sent_) {
    const int error = connection_error(fd_.get());
    if (error != 0) {
      return system_error("cannot connect", error, Errc::kPeerLost);
    }
    const Moved sent =
        send_with_descriptor(fd_.get(), std::as_bytes(std::span(&hello_, 1)), to_hand_over_.get());
    to_hand_over_ = {};
    if (sent.bytes != sizeof hello_) {
      return Error{Errc::kPeerLost, "the new connection broke"};
    }
    hello_sent_ = true;
    return false;
  }
  const Moved got = receive_some(fd_.get(), raw_.data() + received_, raw_.size() - received_);
  if (got.closed) {
    unanswered_ = true;
    return Error{Errc::kPeerLost, "the new connection was closed without an answer"};
  }
  received_ += got.bytes;
  if (received_ < raw_.size()) {
    return false;
  }
  return judged(std::bit_cast<Verdict>(raw_));
}

Result<bool> Outgoing::judged(Verdict verdict) {
  switch (verdict) {
    case Verdict::kWelcome: memory_ = {}; return true;
    case Verdict::kWelcomeShared:
      if (memory_.valid()) {
        return true;
      }
      break;
    case Verdict::kStaleView: return Error{Errc::kAborted, "a newer view is being formed"};
    case Verdict::kWrongKey: return Error{Errc::kRefused, "the other side has another key"};
    case Verdict::kWrongRank:
      return Error{Errc::kRefused, "the other side has another member order"};
  }
  return Error{Errc::kCorrupt, "the other side uses another protocol"};
}

PendingConnections::PendingConnections(UniqueFd tcp, UniqueFd unix_domain)
    : tcp_(std::move(tcp)), unix_domain_(std::move(unix_domain)), thread_([this] { serve(); }) {}

PendingConnections::~PendingConnections() {
  wake_.notify();
  thread_.join();
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
  // Bounded: a flood of connections must not hold up a forming thread.
  const AcceptEnd end = accept_waiting(listener, kPendingMax, [&](UniqueFd fd) {
    std::string who = peer_name(fd.get());
    PendingConnection pending{Incoming(std::move(fd)), std::move(who), now};
    // Usually its hello has arrived already; connections with a hello are closed last.
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

/// Closes the connection that has waited longest without a hello, else the one that has waited
/// longest.
void PendingConnections::make_place() {
  auto place = std::find_if(waiting_.begin(), waiting_.end(), says_nothing_yet);
  place = place == waiting_.end() ? waiting_.begin() : place;
  log_.turned_away(place->who, "too many connections that wait for a view");
  waiting_.erase(place);
}

bool PendingConnections::must_close(PendingConnection& pending, Instant now) {
  const char* why = nullptr;
  const bool is_valid = pending.incoming.receive();
  const std::optional<Hello> hello = pending.incoming.hello();
  if (!is_valid && hello && hello->magic == kHelloMagic) {
    return true;  // a member that has given up its view; it needs no answer
  }
  if (!is_valid) {
    why = hello ? "it uses another protocol" : "it closed the connection without a hello";
  } else if (!hello && now - pending.since > kHelloTimeout) {
    why = "no hello in time";
  } else if (hello && now - pending.since > kAnswerTimeout) {
    why = "its view was not formed in time";
  }
  if (why != nullptr) {
    log_.turned_away(pending.who, why);
  }
  return why != nullptr;
}

void PendingConnections::serve() {
  ::pthread_setname_np(::pthread_self(), "pending");
  // Only sockets that stay open: the forming thread may close waiting ones meanwhile.
  std::array<pollfd, 3> polled{};
  while (true) {
    int timeout = -1;
    {
      const std::unique_lock inside = lock();
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
