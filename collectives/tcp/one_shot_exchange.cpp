#include <algorithm>
#include <cstring>

#include "base/check.hpp"
#include "collectives/plan/reduce_kernels.hpp"
#include "collectives/tcp/exchange.hpp"

namespace mayfly::collectives {
namespace {

// Beyond this the bytes cost more than the second step that they spare.
constexpr std::size_t kTotalBytesMax = 64 * 1024;

class OneShotExchange final : public Exchange {
 public:
  OneShotExchange(const RingTask& task, std::size_t rank, std::span<TcpPeer> peers,
                  std::span<std::byte> scratch)
      : task_(task),
        rank_(rank),
        peers_(peers),
        message_bytes_(sizeof(RingHeader) + task.all_reduced.size()),
        stride_((message_bytes_ + 63) / 64 * 64),
        scratch_(scratch),
        sent_(peers.size()),
        received_(peers.size()) {
    ENSURE(stride_ * peers.size() <= scratch.size(), "the messages of all members fit");
    const std::span<std::byte> own = message_of(rank);
    std::memcpy(own.data(), &task.header, sizeof(RingHeader));
    if (!task.all_reduced.empty()) {
      std::memcpy(own.data() + sizeof(RingHeader), task.all_reduced.data(),
                  task.all_reduced.size());
    }
    sent_[rank] = received_[rank] = message_bytes_;
  }

  bool complete() const override { return complete_; }

  Result<bool> pump() override {
    bool progress = false;
    for (std::size_t step = 1; step < peers_.size(); ++step) {
      const std::size_t rank = (rank_ + step) % peers_.size();
      for (Result<bool> moved : {pump_out(rank), pump_in(rank)}) {
        if (!moved.ok()) {
          return moved;
        }
        progress = progress || moved.value();
      }
    }
    const auto is_whole = [&](std::size_t bytes) { return bytes == message_bytes_; };
    if (std::all_of(sent_.begin(), sent_.end(), is_whole) &&
        std::all_of(received_.begin(), received_.end(), is_whole)) {
      reduce_all();
      complete_ = true;
    }
    return progress;
  }

  Wants wants_of(std::size_t rank) const override {
    const std::size_t missing = message_bytes_ - received_[rank];
    const bool room = sent_[rank] < message_bytes_;
    return {.data = rank == first_missing() ? missing : 0,
            .room = room,
            .presence = room && missing == 0};
  }

 private:
  [[nodiscard]] std::span<std::byte> message_of(std::size_t rank) const {
    return scratch_.subspan(rank * stride_, message_bytes_);
  }

  // Everybody's message is needed, and none depends on another.
  [[nodiscard]] std::size_t first_missing() const {
    for (std::size_t step = 1; step < peers_.size(); ++step) {
      const std::size_t rank = (rank_ + step) % peers_.size();
      if (received_[rank] < message_bytes_) {
        return rank;
      }
    }
    return rank_;
  }

  Result<bool> pump_out(std::size_t rank) {
    if (sent_[rank] == message_bytes_) {
      return false;
    }
    const Moved sent = peers_[rank].channel->send(message_of(rank_).subspan(sent_[rank]), false);
    if (sent.closed) {
      return lost_peer(peers_[rank]);
    }
    sent_[rank] += sent.bytes;
    return sent.bytes > 0;
  }

  Result<bool> pump_in(std::size_t rank) {
    std::size_t& received = received_[rank];
    if (received == message_bytes_) {
      return false;
    }
    const Moved got = peers_[rank].channel->receive(message_of(rank).subspan(received));
    if (got.closed) {
      return lost_peer(peers_[rank]);
    }
    const bool had_header = received >= sizeof(RingHeader);
    received += got.bytes;
    if (!had_header && received >= sizeof(RingHeader)) {
      RingHeader theirs;
      std::memcpy(&theirs, message_of(rank).data(), sizeof theirs);
      TRY(check_header(task_.header, theirs, peers_[rank].member));
    }
    return got.bytes > 0;
  }

  // By rank, so that float sums are the same bits on every member.
  void reduce_all() {
    const std::span<std::byte> into = task_.all_reduced;
    if (into.empty()) {
      return;
    }
    std::memcpy(into.data(), message_of(0).data() + sizeof(RingHeader), into.size());
    for (std::size_t rank = 1; rank < peers_.size(); ++rank) {
      reduce(into.data(), message_of(rank).data() + sizeof(RingHeader),
             into.size() / size_of(task_.type), task_.type, task_.op);
    }
  }

  const RingTask& task_;
  const std::size_t rank_;
  const std::span<TcpPeer> peers_;
  const std::size_t message_bytes_;
  const std::size_t stride_;
  const std::span<std::byte> scratch_;
  std::vector<std::size_t> sent_;
  std::vector<std::size_t> received_;
  bool complete_ = false;
};

}  // namespace

std::size_t one_shot_bytes_max(std::size_t members) {
  return kTotalBytesMax / std::max<std::size_t>(1, members);
}

std::unique_ptr<Exchange> make_one_shot_exchange(const RingTask& task, std::size_t rank,
                                                 std::span<TcpPeer> peers,
                                                 std::span<std::byte> scratch) {
  return std::make_unique<OneShotExchange>(task, rank, peers, scratch);
}

}  // namespace mayfly::collectives
