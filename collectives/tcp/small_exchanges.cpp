// All-reduces of small vectors, whole vectors at a time: in one shot, and by recursive doubling. A
// message is a header and a vector.

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "base/check.hpp"
#include "collectives/plan/reduce_kernels.hpp"
#include "collectives/tcp/exchange.hpp"

namespace mayfly::collectives {
namespace {

// For larger vectors the bytes cost more than the second step that is saved (measured with two and
// four members, over TCP and through shared memory).
constexpr std::size_t kTotalBytesMax = 128 * 1024;

std::span<std::byte> payload(std::span<std::byte> message) {
  return message.subspan(sizeof(OperationHeader));
}

void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  if (!from.empty()) {
    std::memcpy(to.data(), from.data(), from.size());
  }
}

void write_message(const Operation& operation, std::span<std::byte> message) {
  std::memcpy(message.data(), &operation.header, sizeof(OperationHeader));
  copy(operation.data, payload(message));
}

void reduce_message(const Operation& operation, std::span<std::byte> message,
                    std::span<std::byte> into) {
  reduce(into.data(), payload(message).data(), into.size() / size_of(operation.type),
         operation.type, operation.op);
}

class OneShotExchange final : public Exchange {
 public:
  OneShotExchange(const Operation& operation, std::size_t rank, std::span<TcpPeer> peers,
                  std::span<std::byte> scratch)
      : operation_(operation),
        rank_(rank),
        peers_(peers),
        message_bytes_(sizeof(OperationHeader) + operation.data.size()),
        stride_((message_bytes_ + 63) / 64 * 64),
        scratch_(scratch),
        sent_(peers.size()),
        received_(peers.size()) {
    ENSURE(stride_ * peers.size() <= scratch.size(), "the messages of all members fit");
    write_message(operation, message_of(rank));
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

  // The messages of all members are needed, and none depends on another.
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
    return sent_[rank] == message_bytes_
               ? Result<bool>(false)
               : send_rest(peers_[rank], message_of(rank_), sent_[rank], false);
  }
  Result<bool> pump_in(std::size_t rank) {
    return received_[rank] == message_bytes_
               ? Result<bool>(false)
               : receive_rest(peers_[rank], message_of(rank), received_[rank], operation_.header);
  }

  // By rank, so that float sums are the same bits on every member.
  void reduce_all() {
    const std::span<std::byte> into = operation_.data;
    copy(payload(message_of(0)), into);
    for (std::size_t rank = 1; rank < peers_.size() && !into.empty(); ++rank) {
      reduce_message(operation_, message_of(rank), into);
    }
  }

  const Operation& operation_;
  const std::size_t rank_;
  const std::span<TcpPeer> peers_;
  const std::size_t message_bytes_;
  const std::size_t stride_;
  const std::span<std::byte> scratch_;
  std::vector<std::size_t> sent_;      // bytes, by rank
  std::vector<std::size_t> received_;  // bytes, by rank
  bool complete_ = false;
};

// One message to a partner and one from it; not every step has both.
struct Step {
  std::size_t partner = 0;
  bool sends = false;
  bool receives = false;
  bool replaces = false;  // it is the result; otherwise it is added to this vector
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
  DoublingExchange(const Operation& operation, std::size_t rank, std::span<TcpPeer> peers,
                   std::span<std::byte> scratch)
      : operation_(operation),
        peers_(peers),
        steps_(steps_of(rank, peers.size())),
        ours_(scratch.first(sizeof(OperationHeader) + operation.data.size())),
        theirs_(scratch.subspan(kTheirsOffset, ours_.size())) {
    write_message(operation, ours_);
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

  [[nodiscard]] std::size_t to_send() const {
    return steps_[step_].sends ? ours_.size() - sent_ : 0;
  }
  [[nodiscard]] std::size_t to_receive() const {
    return steps_[step_].receives ? theirs_.size() - received_ : 0;
  }
  [[nodiscard]] TcpPeer& partner() const { return peers_[steps_[step_].partner]; }

  Result<bool> pump_out() {
    return to_send() == 0 ? Result<bool>(false) : send_rest(partner(), ours_, sent_, false);
  }
  Result<bool> pump_in() {
    return to_receive() == 0 ? Result<bool>(false)
                             : receive_rest(partner(), theirs_, received_, operation_.header);
  }

  void finish_step() {
    const Step& step = steps_[step_];
    if (step.replaces) {
      copy(payload(theirs_), payload(ours_));
    } else if (step.receives) {
      // Both partners add the same two vectors, and a + b = b + a: the same bits on both.
      reduce_message(operation_, theirs_, payload(ours_));
    }
    sent_ = received_ = 0;
    ++step_;
    if (complete()) {
      copy(payload(ours_), operation_.data);
    }
  }

  const Operation& operation_;
  const std::span<TcpPeer> peers_;
  const std::vector<Step> steps_;
  const std::span<std::byte> ours_;  // the vector to send: the sum so far
  const std::span<std::byte> theirs_;
  std::size_t step_ = 0;
  std::size_t sent_ = 0;      // bytes of this step
  std::size_t received_ = 0;  // bytes of this step
};

}  // namespace

std::size_t one_shot_bytes_max(std::size_t members) {
  return kTotalBytesMax / std::max<std::size_t>(1, members);
}

std::unique_ptr<Exchange> make_one_shot_exchange(const Operation& operation, std::size_t rank,
                                                 std::span<TcpPeer> peers,
                                                 std::span<std::byte> scratch) {
  return std::make_unique<OneShotExchange>(operation, rank, peers, scratch);
}

std::unique_ptr<Exchange> make_doubling_exchange(const Operation& operation, std::size_t rank,
                                                 std::span<TcpPeer> peers,
                                                 std::span<std::byte> scratch) {
  ENSURE(operation.data.size() <= kDoublingBytesMax, "two messages fit into the scratch memory");
  return std::make_unique<DoublingExchange>(operation, rank, peers, scratch);
}

Result<bool> send_rest(TcpPeer& to, ByteSpan message, std::size_t& sent, bool more) {
  const Moved moved = to.channel->send(message.subspan(sent), more);
  if (moved.closed) {
    return to.lost();
  }
  sent += moved.bytes;
  return moved.bytes > 0;
}

Result<bool> receive_rest(TcpPeer& from, std::span<std::byte> message, std::size_t& received,
                          const OperationHeader& ours) {
  const Moved moved = from.channel->receive(message.subspan(received));
  if (moved.closed) {
    return from.lost();
  }
  const bool had_header = received >= sizeof(OperationHeader);
  received += moved.bytes;
  if (!had_header && received >= sizeof(OperationHeader)) {
    OperationHeader theirs;
    std::memcpy(&theirs, message.data(), sizeof theirs);
    TRY(check_header(ours, theirs, from.member));
  }
  return moved.bytes > 0;
}

}  // namespace mayfly::collectives
