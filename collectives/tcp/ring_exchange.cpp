#include <algorithm>

#include "collectives/tcp/exchange.hpp"

namespace mayfly::collectives {
namespace {

using Piece = RingTask::Piece;

// Received and reduced in one go: half of a typical second-level cache or less, so that the sum
// finds the bytes where the kernel has just put them, and early enough for the next member to
// start.
constexpr std::size_t kPieceBytes = 128 * 1024;

// A position in a list of pieces.
class Cursor {
 public:
  explicit Cursor(const std::vector<Piece>& pieces) : pieces_(pieces) { skip_empty(); }

  [[nodiscard]] bool at_end() const { return index_ == pieces_.size(); }
  [[nodiscard]] std::size_t index() const { return index_; }
  /// At most `limit` bytes from here, of the present piece.
  [[nodiscard]] std::span<std::byte> ahead(std::size_t limit) const {
    const Piece& piece = pieces_[index_];
    return {piece.data + offset_, std::min(limit, piece.bytes - offset_)};
  }
  void advance(std::size_t bytes) {
    offset_ += bytes;
    skip_empty();
  }

 private:
  void skip_empty() {
    while (index_ < pieces_.size() && offset_ == pieces_[index_].bytes) {
      ++index_;
      offset_ = 0;
    }
  }

  const std::vector<Piece>& pieces_;
  std::size_t index_ = 0;
  std::size_t offset_ = 0;
};

class RingExchange final : public Exchange {
 public:
  RingExchange(const RingTask& task, std::size_t rank, std::span<TcpPeer> peers,
               std::span<std::byte> scratch)
      : task_(task),
        scratch_(scratch),
        next_rank_((rank + 1) % peers.size()),
        previous_rank_((rank + peers.size() - 1) % peers.size()),
        next_(peers[next_rank_]),
        previous_(peers[previous_rank_]),
        header_out_(task.header, next_),
        header_in_(task.header, previous_),
        out_(task.outgoing),
        in_(task.incoming),
        sendable_(task.ready_bytes) {}

  bool complete() const override { return sent_all() && received_all(); }

  Result<bool> pump() override {
    Result<bool> in = pump_in();
    if (!in.ok()) {
      return in;
    }
    Result<bool> out = pump_out();
    if (!out.ok()) {
      return out;
    }
    return in.value() || out.value();
  }

  // In a ring of two, next and previous are the same peer.
  Wants wants_of(std::size_t rank) const override {
    Wants wants;
    if (rank == previous_rank_) {
      wants.data = wanted_bytes();
    }
    if (rank == next_rank_) {
      wants.room = !header_out_.sent() || (!out_.at_end() && sendable_ > 0);
      wants.presence = !sent_all() && wants.data == 0;
    }
    return wants;
  }

 private:
  [[nodiscard]] std::size_t wanted_bytes() const {
    if (!header_in_.received()) {
      return 1;
    }
    return in_.at_end() ? 0 : in_.ahead(kWakeBytes).size();
  }
  [[nodiscard]] bool sent_all() const { return header_out_.sent() && out_.at_end(); }
  [[nodiscard]] bool received_all() const { return header_in_.received() && in_.at_end(); }

  Result<bool> pump_out() {
    bool progress = false;
    if (!header_out_.sent()) {
      Result<bool> sent = header_out_.send(!out_.at_end() && sendable_ > 0);
      if (!sent.ok() || !header_out_.sent()) {
        return sent;
      }
      progress = true;
    }
    while (!out_.at_end() && sendable_ > 0) {
      const Moved sent = next_.channel->send(out_.ahead(sendable_), false);
      if (sent.closed) {
        return lost_peer(next_);
      }
      if (sent.bytes == 0) {
        break;
      }
      out_.advance(sent.bytes);
      sendable_ -= sent.bytes;
      progress = true;
    }
    return progress;
  }

  Result<bool> pump_in() {
    if (!header_in_.received()) {
      return header_in_.receive();
    }
    if (in_.at_end()) {
      return false;
    }
    Channel& from = *previous_.channel;
    const std::span<std::byte> into = in_.ahead(kPieceBytes);
    const Moved got = in_.index() < task_.reduced
                          ? from.receive_and_reduce(into, {task_.type, task_.op}, scratch_)
                          : from.receive(into);
    if (got.closed) {
      return lost_peer(previous_);
    }
    in_.advance(got.bytes);
    sendable_ += got.bytes;
    return got.bytes > 0;
  }

  const RingTask& task_;
  const std::span<std::byte> scratch_;
  const std::size_t next_rank_;
  const std::size_t previous_rank_;
  TcpPeer& next_;
  TcpPeer& previous_;
  HeaderExchange header_out_;
  HeaderExchange header_in_;
  Cursor out_;
  Cursor in_;
  std::size_t sendable_;  // bytes of the outgoing stream that are ready and not sent
};

}  // namespace

std::unique_ptr<Exchange> make_ring_exchange(const RingTask& task, std::size_t rank,
                                             std::span<TcpPeer> peers,
                                             std::span<std::byte> scratch) {
  return std::make_unique<RingExchange>(task, rank, peers, scratch);
}

}  // namespace mayfly::collectives
