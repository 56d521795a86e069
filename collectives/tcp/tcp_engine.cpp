#include "collectives/tcp/tcp_engine.hpp"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "base/aligned_buffer.hpp"
#include "base/try_assign.hpp"
#include "base/usable_cores.hpp"

namespace mayfly::collectives {
namespace {

constexpr Duration kWindowMax = std::chrono::microseconds(100);
constexpr Duration kWindowMin = std::chrono::microseconds(10);  // below this no window is used

// How long to poll before sleeping in the kernel. Waking a core that has gone idle takes tens of
// microseconds, much longer than most waits inside an all-reduce of a quiet machine; but a thread
// that spins in vain takes the core from the thread that it waits for. So the window adapts, as the
// kernel's own halt polling does: it grows when a sleep turned out to be shorter than the longest
// window, and shrinks when a sleep was long. Each poll first yields the core to the next waiting
// thread.
class SpinWindow {
 public:
  // Data was transferred: the next wait begins now.
  void start() { waiting_since_ = {}; }
  // True: poll again. False: sleep now.
  bool may_spin() {
    if (window_ < kWindowMin) {
      return false;
    }
    const Instant now = monotonic_now();
    if (waiting_since_ == Instant{}) {
      waiting_since_ = now;
    }
    if (now - waiting_since_ >= window_) {
      return false;
    }
    ::sched_yield();
    return true;
  }
  // To be called around a sleep.
  void slept_from() { sleeping_since_ = monotonic_now(); }
  void slept_until() {
    const bool was_short = monotonic_now() - sleeping_since_ < kWindowMax;
    window_ = was_short ? std::min(std::max(window_ * 2, kWindowMin), kWindowMax) : window_ / 2;
    start();
  }

 private:
  Duration window_{};
  Instant waiting_since_{};  // zero: not known yet
  Instant sleeping_since_{};
};

// The time in which no data was transferred. One thread at a time begins and ends a wait; any
// thread asks.
class IdleTime {
 public:
  void begin() {
    if (since_ns_.load(std::memory_order_relaxed) == 0) {
      since_ns_.store(monotonic_now().ns, std::memory_order_relaxed);
    }
  }
  void end() {
    const std::int64_t since = since_ns_.load(std::memory_order_relaxed);
    if (since != 0) {
      since_ns_.store(0, std::memory_order_relaxed);
      total_ns_.fetch_add(monotonic_now().ns - since, std::memory_order_release);
    }
  }
  // A wait that ends at this moment may be missing; in the other order it could count twice.
  Duration so_far() const {
    const std::int64_t total = total_ns_.load(std::memory_order_acquire);
    const std::int64_t since = since_ns_.load(std::memory_order_relaxed);
    return Duration(total + (since == 0 ? 0 : monotonic_now().ns - since));
  }

 private:
  std::atomic<std::int64_t> since_ns_ = 0;  // 0: data is being transferred
  std::atomic<std::int64_t> total_ns_ = 0;
};

class PollingTcpEngine final : public TcpEngine {
 public:
  PollingTcpEngine(TcpConnections connections, std::shared_ptr<AbortSignal> signal)
      : connections_(std::move(connections)), signal_(std::move(signal)) {
    watched_.reserve(connections_.peers.size() + 1);
    watched_ranks_.reserve(connections_.peers.size());
  }

  bool finds_host_crowded() const override {
    return connections_.local_members > std::max(1U, usable_cores());
  }
  void spare_messages(bool spare) override { spares_messages_ = spare; }

  void begin(const Operation& operation) override {
    const std::size_t bytes = operation.data.size();
    std::vector<TcpPeer>& peers = connections_.peers;
    const std::size_t rank = connections_.rank;
    if (!connections_.is_mesh || !operation.is_reduction()) {
      exchange_ = make_ring_exchange(operation, rank, peers, scratch_.span());
    } else if (spares_messages_ && bytes <= kDoublingBytesMax) {
      exchange_ = make_doubling_exchange(operation, rank, peers, scratch_.span());
    } else if (bytes <= one_shot_bytes_max(peers.size())) {
      exchange_ = make_one_shot_exchange(operation, rank, peers, scratch_.span());
    } else {
      exchange_ = make_two_shot_exchange(operation, rank, peers, scratch_.span());
    }
  }

  Result<bool> advance(std::optional<Instant> until) override {
    window_.start();
    Result<bool> outcome = move_until(until);
    idle_.end();
    return outcome;
  }

  bool returns_by(std::optional<Instant> /*until*/) const override { return true; }

  std::optional<Duration> time_waited() const override { return idle_.so_far(); }

  void abort() noexcept override { signal_->raise(); }

 private:
  Result<bool> move_until(std::optional<Instant> until) {
    while (!exchange_->complete()) {
      if (signal_->raised()) {
        return Error{Errc::kAborted, "the group was aborted"};
      }
      TRY_ASSIGN(const bool moved, exchange_->pump());
      if (moved) {
        window_.start();
        idle_.end();
        continue;
      }
      idle_.begin();
      if (until && monotonic_now() >= *until) {
        return false;
      }
      if (window_.may_spin()) {
        continue;
      }
      TRY(sleep(until));
    }
    return true;
  }

  // Waits until a channel is ready, the group is aborted or the time has passed.
  Result<void> sleep(std::optional<Instant> until) {
    if (!watch_channels()) {
      return {};
    }
    watched_.push_back({.fd = signal_->fd(), .events = POLLIN, .revents = 0});
    window_.slept_from();
    const Instant look_again = monotonic_now() + kReachInterval;
    const int ready = ::poll(watched_.data(), watched_.size(),
                             poll_timeout_ms(until ? std::min(*until, look_again) : look_again));
    window_.slept_until();
    if (ready == 0) {
      return check_reach();
    }
    for (std::size_t i = 0; ready > 0 && i < watched_ranks_.size(); ++i) {
      TcpPeer& peer = connections_.peers[watched_ranks_[i]];
      if (watched_[i].revents != 0 && peer.channel->woken(watched_[i].revents) &&
          exchange_->wants_of(watched_ranks_[i]).presence && !signal_->raised()) {
        return peer.lost();
      }
    }
    return {};
  }

  // Nothing has arrived for a while. As long as the hosts of its peers answer, this member waits.
  Result<void> check_reach() {
    for (const TcpPeer& peer : connections_.peers) {
      if (peer.channel && peer.channel->unreachable()) {
        return peer.unreachable();
      }
    }
    return {};
  }

  // False: a channel is ready already.
  bool watch_channels() {
    watched_.clear();
    watched_ranks_.clear();
    bool idle = true;
    for (std::size_t rank = 0; rank < connections_.peers.size(); ++rank) {
      TcpPeer& peer = connections_.peers[rank];
      const Wants wants = peer.channel ? exchange_->wants_of(rank) : Wants{};
      if (wants.anything()) {
        pollfd fd{};
        idle = peer.channel->watch(wants.data, wants.room, fd) && idle;
        watched_.push_back(fd);
        watched_ranks_.push_back(rank);
      }
    }
    return idle;
  }

  TcpConnections connections_;
  const std::shared_ptr<AbortSignal> signal_;  // shared with the transport while it forms the group
  AlignedBuffer<std::byte> scratch_{kExchangeScratchBytes};
  std::unique_ptr<Exchange> exchange_;
  bool spares_messages_ = false;
  SpinWindow window_;
  IdleTime idle_;
  std::vector<pollfd> watched_;
  std::vector<std::size_t> watched_ranks_;
};

}  // namespace

std::unique_ptr<TcpEngine> make_tcp_engine(TcpConnections connections,
                                           std::shared_ptr<AbortSignal> signal) {
  return std::make_unique<PollingTcpEngine>(std::move(connections), std::move(signal));
}

}  // namespace mayfly::collectives
