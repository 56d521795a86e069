#include "collectives/tcp/tcp_link.hpp"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "base/aligned_buffer.hpp"
#include "collectives/tcp/spin_window.hpp"

namespace mayfly::collectives {
namespace {

class PollingTcpLink final : public TcpLink {
 public:
  PollingTcpLink(TcpConnections connections, std::shared_ptr<AbortSignal> signal)
      : connections_(std::move(connections)), signal_(std::move(signal)) {
    watched_.reserve(connections_.peers.size() + 1);
    watched_ranks_.reserve(connections_.peers.size());
  }

  bool finds_host_crowded() const override { return connections_.local_members > usable_cores(); }
  void spare_messages(bool spare) override { spares_messages_ = spare; }

  void begin(const RingTask& task) override {
    const std::span<std::byte> data = task.all_reduced;
    std::vector<TcpPeer>& peers = connections_.peers;
    const std::size_t rank = connections_.rank;
    const bool direct = connections_.is_mesh && task.is_all_reduce;
    if (!direct) {
      exchange_ = make_ring_exchange(task, rank, peers, scratch_.span());
    } else if (spares_messages_ && data.size() <= kDoublingBytesMax) {
      exchange_ = make_doubling_exchange(task, rank, peers, scratch_.span());
    } else if (data.size() <= one_shot_bytes_max(peers.size())) {
      exchange_ = make_one_shot_exchange(task, rank, peers, scratch_.span());
    } else {
      exchange_ = make_two_shot_exchange(task, rank, peers, scratch_.span());
    }
  }

  Result<bool> advance(std::optional<Instant> until) override {
    window_.start();
    while (!exchange_->complete()) {
      if (signal_->raised()) {
        return Error{Errc::kAborted, "the group was aborted"};
      }
      const Result<bool> moved = exchange_->pump();
      if (!moved.ok()) {
        return moved.error();
      }
      if (moved.value()) {
        window_.start();
        continue;
      }
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

  bool can_pause() const override { return true; }

  void abort() noexcept override { signal_->raise(); }

 private:
  // Until a channel is ready, the group is aborted or the time is up.
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
        return lost_peer(peer);
      }
    }
    return {};
  }

  // Nothing has come for a while. Neighbours whose hosts answer are waited for, however long.
  Result<void> check_reach() {
    for (const TcpPeer& peer : connections_.peers) {
      if (peer.channel && peer.channel->unreachable()) {
        return unreachable_peer(peer);
      }
    }
    return {};
  }

  // False: one of them is ready already.
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
  const std::shared_ptr<AbortSignal> signal_;  // the transport keeps it while it forms the link
  AlignedBuffer<std::byte> scratch_{kExchangeScratchBytes};
  std::unique_ptr<Exchange> exchange_;
  bool spares_messages_ = false;
  SpinWindow window_;
  std::vector<pollfd> watched_;
  std::vector<std::size_t> watched_ranks_;
};

}  // namespace

std::unique_ptr<TcpLink> make_tcp_link(TcpConnections connections,
                                       std::shared_ptr<AbortSignal> signal) {
  return std::make_unique<PollingTcpLink>(std::move(connections), std::move(signal));
}

}  // namespace mayfly::collectives
