// Operations of any size, as streams of which every part is sent on as soon as it has arrived:
// along the ring, and all-reduces in two shots.

#include <algorithm>
#include <vector>

#include "collectives/plan/ring_schedule.hpp"
#include "collectives/tcp/exchange.hpp"

namespace mayfly::collectives {
namespace {

using Piece = RingTask::Piece;

// A thread is not woken for fewer bytes as long as more will arrive.
constexpr std::size_t kWakeBytes = 64 * 1024;
// Bytes along the ring that are received and reduced at a time: half of a typical second-level
// cache or less, so that the sum finds the bytes where the kernel has just put them, and early
// enough for the next member to start.
constexpr std::size_t kRingPieceBytes = 128 * 1024;
// Bytes in two shots that are sent, or received and reduced, at a time: measured best at 2 MB and
// above (128 KiB were slower there).
constexpr std::size_t kTwoShotPieceBytes = 256 * 1024;

// The headers of one operation to and from one peer.
class HeaderExchange {
 public:
  HeaderExchange(const OperationHeader& ours, TcpPeer& peer) : ours_(ours), peer_(&peer) {}

  [[nodiscard]] bool sent() const { return sent_bytes_ == sizeof(OperationHeader); }
  [[nodiscard]] bool received() const { return received_bytes_ == sizeof(OperationHeader); }
  // Sends or receives more of it; false: no byte was transferred. `more`: data follows at once.
  [[nodiscard]] Result<bool> send(bool more) {
    return send_rest(*peer_, std::as_bytes(std::span(&ours_, 1)), sent_bytes_, more);
  }
  [[nodiscard]] Result<bool> receive() {
    return receive_rest(*peer_, std::as_writable_bytes(std::span(&theirs_, 1)), received_bytes_,
                        ours_);
  }

 private:
  OperationHeader ours_;
  TcpPeer* peer_;
  OperationHeader theirs_;
  std::size_t sent_bytes_ = 0;
  std::size_t received_bytes_ = 0;
};

// A position in a list of pieces, none of which is empty.
class Cursor {
 public:
  explicit Cursor(const std::vector<Piece>& pieces) : pieces_(pieces) {}

  [[nodiscard]] bool at_end() const { return index_ == pieces_.size(); }
  [[nodiscard]] const Piece& piece() const { return pieces_[index_]; }
  // At most `limit` bytes from here, of the present piece.
  [[nodiscard]] std::span<std::byte> ahead(std::size_t limit) const {
    return {piece().data + offset_, std::min(limit, piece().bytes - offset_)};
  }
  void advance(std::size_t bytes) {
    offset_ += bytes;
    if (!at_end() && offset_ == piece().bytes) {
      ++index_;
      offset_ = 0;
    }
  }

 private:
  const std::vector<Piece>& pieces_;
  std::size_t index_ = 0;
  std::size_t offset_ = 0;
};

class RingExchange final : public Exchange {
 public:
  RingExchange(const Operation& operation, std::size_t rank, std::span<TcpPeer> peers,
               std::span<std::byte> scratch)
      : operation_(operation),
        task_(ring_task(operation, static_cast<std::uint32_t>(peers.size()),
                        static_cast<Rank>(rank), SIZE_MAX)),
        scratch_(scratch),
        next_rank_((rank + 1) % peers.size()),
        previous_rank_((rank + peers.size() - 1) % peers.size()),
        next_(peers[next_rank_]),
        previous_(peers[previous_rank_]),
        header_out_(operation.header, next_),
        header_in_(operation.header, previous_),
        out_(task_.outgoing),
        in_(task_.incoming),
        sendable_(task_.ready_bytes) {}

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
        return next_.lost();
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
    const std::span<std::byte> into = in_.ahead(kRingPieceBytes);
    const Moved got = in_.piece().is_reduced ? from.receive_and_reduce(
                                                   into, {operation_.type, operation_.op}, scratch_)
                                             : from.receive(into);
    if (got.closed) {
      return previous_.lost();
    }
    in_.advance(got.bytes);
    sendable_ += got.bytes;
    return got.bytes > 0;
  }

  const Operation& operation_;
  const RingTask task_;
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

// The streams to and from one other member. Outgoing: this member's contribution to the segment of
// the other, then the result of this member's segment. Incoming: the other's contribution to this
// member's segment, then the result of the other's.
struct Streams {
  Streams(const OperationHeader& ours, TcpPeer& to, std::span<std::byte> its_segment)
      : peer(&to), segment(its_segment), header(ours, to) {}

  TcpPeer* peer;
  std::span<std::byte> segment;  // of that member
  HeaderExchange header;
  std::size_t sent = 0;
  std::size_t received = 0;
};

class TwoShotExchange final : public Exchange {
 public:
  TwoShotExchange(const Operation& operation, std::size_t rank, std::span<TcpPeer> peers,
                  std::span<std::byte> scratch)
      : operation_(operation), rank_(rank), size_(peers.size()), scratch_(scratch) {
    const bool is_float = operation.type != DataType::kInt32 &&
                          operation.type != DataType::kInt64 && operation.type != DataType::kInt16;
    ordered_ = is_float && operation.op == ReduceOp::kSum;
    own_ = segment_of_rank(rank);
    streams_.reserve(size_ - 1);
    for (std::size_t step = 1; step < size_; ++step) {
      const std::size_t other = (rank + step) % size_;
      streams_.emplace_back(operation.header, peers[other], segment_of_rank(other));
    }
  }

  bool complete() const override {
    return std::all_of(streams_.begin(), streams_.end(),
                       [&](const Streams& s) { return sent_all(s) && received_all(s); });
  }

  Result<bool> pump() override {
    bool progress = false;
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      for (Result<bool> moved : {pump_in(i), pump_out(streams_[i])}) {
        if (!moved.ok()) {
          return moved;
        }
        progress = progress || moved.value();
      }
    }
    return progress;
  }

  Wants wants_of(std::size_t rank) const override {
    const std::size_t index = (rank + size_ - rank_) % size_ - 1;
    const Streams& s = streams_[index];
    Wants wants;
    wants.data = wanted_bytes(index);
    wants.room = !s.header.sent() || sendable(s) > 0;
    wants.presence = received_all(s) && !sent_all(s);
    return wants;
  }

 private:
  [[nodiscard]] std::span<std::byte> segment_of_rank(std::size_t rank) const {
    const std::size_t element = size_of(operation_.type);
    const Segment segment =
        segment_of(operation_.data.size() / element, static_cast<std::uint32_t>(size_),
                   static_cast<std::uint32_t>(rank));
    return operation_.data.subspan(segment.offset * element, segment.count * element);
  }

  [[nodiscard]] std::size_t stream_bytes(const Streams& s) const {
    return s.segment.size() + own_.size();
  }
  [[nodiscard]] bool sent_all(const Streams& s) const {
    return s.header.sent() && s.sent == stream_bytes(s);
  }
  [[nodiscard]] bool received_all(const Streams& s) const {
    return s.header.received() && s.received == stream_bytes(s);
  }

  // Bytes of this member's segment to which every member has contributed.
  [[nodiscard]] std::size_t reduced() const {
    std::size_t least = own_.size();
    for (const Streams& s : streams_) {
      least = std::min(least, s.received);
    }
    return least;
  }

  [[nodiscard]] std::size_t sendable(const Streams& s) const {
    const std::size_t first = s.segment.size();
    return s.sent < first ? first - s.sent : first + reduced() - s.sent;
  }

  // Bytes that may be received from a stream now. Float sums are taken in a fixed order of members,
  // so that a run can be repeated bit by bit.
  [[nodiscard]] std::size_t receivable(std::size_t index) const {
    const Streams& s = streams_[index];
    if (s.received >= own_.size()) {
      return stream_bytes(s) - s.received;
    }
    std::size_t limit = own_.size();
    if (ordered_ && index > 0) {
      limit = std::min(limit, streams_[index - 1].received);
    }
    return limit - s.received;
  }

  // Before a sleep: contributions to this member's segment are awaited from all others, but results
  // from only one at a time, the first member that has not sent all of its own. That cannot
  // deadlock: on this side a result depends only on bytes that this member has to send, and it
  // always waits for room for those (wants_of).
  [[nodiscard]] std::size_t wanted_bytes(std::size_t index) const {
    const Streams& s = streams_[index];
    if (!s.header.received()) {
      return 1;
    }
    const bool is_first = std::all_of(streams_.begin(), streams_.begin() + index,
                                      [&](const Streams& before) { return received_all(before); });
    const std::size_t wanted =
        s.received < own_.size() ? receivable(index) : (is_first ? receivable(index) : 0);
    return std::min(wanted, kWakeBytes);
  }

  Result<bool> pump_out(Streams& s) {
    bool progress = false;
    if (!s.header.sent()) {
      Result<bool> sent = s.header.send(sendable(s) > 0);
      if (!sent.ok() || !s.header.sent()) {
        return sent;
      }
      progress = true;
    }
    // One piece at a time, in turn with receiving: sending everything first only fills buffers.
    if (const std::size_t ready = std::min(sendable(s), kTwoShotPieceBytes); ready > 0) {
      const std::size_t first = s.segment.size();
      const std::byte* const from =
          s.sent < first ? s.segment.data() + s.sent : own_.data() + (s.sent - first);
      const Moved sent = s.peer->channel->send({from, ready}, false);
      if (sent.closed) {
        return s.peer->lost();
      }
      s.sent += sent.bytes;
      progress = progress || sent.bytes > 0;
    }
    return progress;
  }

  Result<bool> pump_in(std::size_t index) {
    Streams& s = streams_[index];
    if (!s.header.received()) {
      return s.header.receive();
    }
    const std::size_t want = std::min(receivable(index), kTwoShotPieceBytes);
    if (want == 0) {
      return false;
    }
    Channel& from = *s.peer->channel;
    const Moved got = s.received < own_.size()
                          ? from.receive_and_reduce(own_.subspan(s.received, want),
                                                    {operation_.type, operation_.op}, scratch_)
                          : from.receive(s.segment.subspan(s.received - own_.size(), want));
    if (got.closed) {
      return s.peer->lost();
    }
    s.received += got.bytes;
    return got.bytes > 0;
  }

  const Operation& operation_;
  const std::size_t rank_;
  const std::size_t size_;
  const std::span<std::byte> scratch_;
  bool ordered_ = false;
  std::span<std::byte> own_;      // this member's segment
  std::vector<Streams> streams_;  // beginning with the member after this one
};

}  // namespace

std::unique_ptr<Exchange> make_ring_exchange(const Operation& operation, std::size_t rank,
                                             std::span<TcpPeer> peers,
                                             std::span<std::byte> scratch) {
  return std::make_unique<RingExchange>(operation, rank, peers, scratch);
}

std::unique_ptr<Exchange> make_two_shot_exchange(const Operation& operation, std::size_t rank,
                                                 std::span<TcpPeer> peers,
                                                 std::span<std::byte> scratch) {
  return std::make_unique<TwoShotExchange>(operation, rank, peers, scratch);
}

}  // namespace mayfly::collectives
