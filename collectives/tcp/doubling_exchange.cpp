#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.hpp"
#include "collectives/plan/reduce_kernels.hpp"
#include "collectives/tcp/exchange.hpp"

namespace mayfly::collectives {
namespace {

// One message to and one from a partner; not every step has both.
struct Step {
  std::size_t partner = 0;
  bool sends = false;
  bool receives = false;
  bool replaces = false;  // what comes is the result; else it is added to ours
};

// The largest power of two of members double; each of the others gives its vector to one of them
// first, and gets the result from it at the end.
std::vector<Step> steps_of(std::size_t rank, std::size_t size) {
  const std::size_t doubling = std::bit_floor(size);
  std::vector<Step> steps;
  if (rank >= doubling) {
    steps.push_back({.partner = rank - doubling, .sends = true});
    steps.push_back({.partner = rank - doubling, .receives = true, .replaces = true});
    return steps;
  }
  const bool has_other = rank + doubling < size;
  if (has_other) {
    steps.push_back({.partner = rank + doubling, .receives = true});
  }
  for (std::size_t distance = 1; distance < doubling; distance *= 2) {
    steps.push_back({.partner = rank ^ distance, .sends = true, .receives = true});
  }
  if (has_other) {
    steps.push_back({.partner = rank + doubling, .sends = true});
  }
  return steps;
}

class DoublingExchange final : public Exchange {
 public:
  DoublingExchange(const RingTask& task, std::size_t rank, std::span<TcpPeer> peers,
                   std::span<std::byte> scratch)
      : task_(task),
        peers_(peers),
        steps_(steps_of(rank, peers.size())),
        ours_(scratch.first(sizeof(RingHeader) + task.all_reduced.size())),
        theirs_(scratch.subspan(kTheirsOffset, ours_.size())) {
    std::memcpy(ours_.data(), &task.header, sizeof(RingHeader));
    copy(task.all_reduced, payload(ours_));
  }

  bool complete() const override { return step_ == steps_.size(); }

  Result<bool> pump() override {
    bool progress = false;
    while (!complete()) {
      for (Result<bool> moved : {pump_out(), pump_in()}) {
        if (!moved.ok()) {
          return moved;
        }
        progress = progress || moved.value();
      }
      if (to_send() > 0 || to_receive() > 0) {
        break;
      }
      finish_step();
    }
    return progress;
  }

  Wants wants_of(std::size_t rank) const override {
    if (complete() || rank != steps_[step_].partner) {
      return {};
    }
    return {.data = to_receive(),
            .room = to_send() > 0,
            .presence = to_send() > 0 && to_receive() == 0};
  }

 private:
  static constexpr std::size_t kTheirsOffset = kExchangeScratchBytes / 2;

  static std::span<std::byte> payload(std::span<std::byte> message) {
    return message.subspan(sizeof(RingHeader));
  }
  static void copy(std::span<const std::byte> from, std::span<std::byte> to) {
    if (!from.empty()) {
      std::memcpy(to.data(), from.data(), from.size());
    }
  }

  [[nodiscard]] std::size_t to_send() const {
    return steps_[step_].sends ? ours_.size() - sent_ : 0;
  }
  [[nodiscard]] std::size_t to_receive() const {
    return steps_[step_].receives ? theirs_.size() - received_ : 0;
  }
  [[nodiscard]] TcpPeer& partner() const { return peers_[steps_[step_].partner]; }

  Result<bool> pump_out() {
    if (to_send() == 0) {
      return false;
    }
    const Moved sent = partner().channel->send(ours_.subspan(sent_), false);
    if (sent.closed) {
      return lost_peer(partner());
    }
    sent_ += sent.bytes;
    return sent.bytes > 0;
  }

  Result<bool> pump_in() {
    if (to_receive() == 0) {
      return false;
    }
    const Moved got = partner().channel->receive(theirs_.subspan(received_));
    if (got.closed) {
      return lost_peer(partner());
    }
    const bool had_header = received_ >= sizeof(RingHeader);
    received_ += got.bytes;
    if (!had_header && received_ >= sizeof(RingHeader)) {
      RingHeader header;
      std::memcpy(&header, theirs_.data(), sizeof header);
      TRY(check_header(task_.header, header, partner().member));
    }
    return got.bytes > 0;
  }

  void finish_step() {
    const Step& step = steps_[step_];
    if (step.replaces) {
      copy(payload(theirs_), payload(ours_));
    } else if (step.receives) {
      // Both partners add the same two vectors, and a + b = b + a: the same bits on both.
      reduce(payload(ours_).data(), payload(theirs_).data(),
             task_.all_reduced.size() / size_of(task_.type), task_.type, task_.op);
    }
    sent_ = received_ = 0;
    ++step_;
    if (complete()) {
      copy(payload(ours_), task_.all_reduced);
    }
  }

  const RingTask& task_;
  const std::span<TcpPeer> peers_;
  const std::vector<Step> steps_;
  const std::span<std::byte> ours_;  // what we send: the sum so far
  const std::span<std::byte> theirs_;
  std::size_t step_ = 0;
  std::size_t sent_ = 0;      // in this step
  std::size_t received_ = 0;  // in this step
};

}  // namespace

std::unique_ptr<Exchange> make_doubling_exchange(const RingTask& task, std::size_t rank,
                                                 std::span<TcpPeer> peers,
                                                 std::span<std::byte> scratch) {
  ENSURE(task.all_reduced.size() <= kDoublingBytesMax, "two messages fit into the scratch memory");
  return std::make_unique<DoublingExchange>(task, rank, peers, scratch);
}

}  // namespace mayfly::collectives
