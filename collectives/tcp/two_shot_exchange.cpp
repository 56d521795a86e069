#include <algorithm>

#include "collectives/plan/ring_schedule.hpp"
#include "collectives/tcp/exchange.hpp"

namespace mayfly::collectives {
namespace {

// Sent, or received and reduced, in one go: measured best at 2 MB and above (128 KiB were slower
// there).
constexpr std::size_t kPieceBytes = 256 * 1024;

// The streams to and from one member. Outgoing: its segment as we have it, then the result of ours.
// Incoming: our segment as it has it, then the result of its.
struct Streams {
  Streams(const RingHeader& ours, TcpPeer& to, std::span<std::byte> its_segment)
      : peer(&to), segment(its_segment), header(ours, to) {}

  TcpPeer* peer;
  std::span<std::byte> segment;  // of that member
  HeaderExchange header;
  std::size_t sent = 0;
  std::size_t received = 0;
};

class TwoShotExchange final : public Exchange {
 public:
  TwoShotExchange(const RingTask& task, std::size_t rank, std::span<TcpPeer> peers,
                  std::span<std::byte> scratch)
      : task_(task), rank_(rank), size_(peers.size()), scratch_(scratch) {
    const bool is_float = task.type != DataType::kInt32 && task.type != DataType::kInt64 &&
                          task.type != DataType::kInt16;
    ordered_ = is_float && task.op == ReduceOp::kSum;
    own_ = segment_of_rank(rank);
    streams_.reserve(size_ - 1);
    for (std::size_t step = 1; step < size_; ++step) {
      const std::size_t other = (rank + step) % size_;
      streams_.emplace_back(task.header, peers[other], segment_of_rank(other));
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
    const std::size_t element = size_of(task_.type);
    const Segment segment =
        segment_of(task_.all_reduced.size() / element, static_cast<std::uint32_t>(size_),
                   static_cast<std::uint32_t>(rank));
    return task_.all_reduced.subspan(segment.offset * element, segment.count * element);
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

  // Bytes of our own segment that every member has given to.
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

  // What may be received from a stream now. Float sums are taken in a fixed order of members, so
  // that a run can be repeated bit by bit.
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

  // Segments to reduce are wanted from everybody. Results only from the first member that has not
  // sent its own: they depend on nothing that we do not watch.
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
    // One piece at a time, in turn with receiving: who sends all it can first only fills buffers.
    if (const std::size_t ready = std::min(sendable(s), kPieceBytes); ready > 0) {
      const std::size_t first = s.segment.size();
      const std::byte* const from =
          s.sent < first ? s.segment.data() + s.sent : own_.data() + (s.sent - first);
      const Moved sent = s.peer->channel->send({from, ready}, false);
      if (sent.closed) {
        return lost_peer(*s.peer);
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
    const std::size_t want = std::min(receivable(index), kPieceBytes);
    if (want == 0) {
      return false;
    }
    Channel& from = *s.peer->channel;
    const Moved got = s.received < own_.size()
                          ? from.receive_and_reduce(own_.subspan(s.received, want),
                                                    {task_.type, task_.op}, scratch_)
                          : from.receive(s.segment.subspan(s.received - own_.size(), want));
    if (got.closed) {
      return lost_peer(*s.peer);
    }
    s.received += got.bytes;
    return got.bytes > 0;
  }

  const RingTask& task_;
  const std::size_t rank_;
  const std::size_t size_;
  const std::span<std::byte> scratch_;
  bool ordered_ = false;
  std::span<std::byte> own_;      // our segment
  std::vector<Streams> streams_;  // from the member after us on
};

}  // namespace

std::unique_ptr<Exchange> make_two_shot_exchange(const RingTask& task, std::size_t rank,
                                                 std::span<TcpPeer> peers,
                                                 std::span<std::byte> scratch) {
  return std::make_unique<TwoShotExchange>(task, rank, peers, scratch);
}

}  // namespace mayfly::collectives
