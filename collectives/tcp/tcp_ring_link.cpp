#include "collectives/tcp/tcp_ring_link.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/aligned_buffer.hpp"
#include "collectives/plan/reduce_kernels.hpp"
#include "collectives/tcp/sockets.hpp"

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
  [[nodiscard]] std::byte* data() const { return pieces_[index_].data + offset_; }
  /// Bytes left in the present piece.
  [[nodiscard]] std::size_t left() const { return pieces_[index_].bytes - offset_; }
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

// The state of one run of one task. Progress is made by two non-blocking pumps; both say whether
// they moved anything, and the caller sleeps when neither did.
class TcpRun {
 public:
  TcpRun(const RingTask& task, const TcpLinkSockets& sockets, std::span<std::byte> scratch,
         RingNeighbours neighbours)
      : task_(task),
        sockets_(sockets),
        scratch_(scratch),
        neighbours_(neighbours),
        out_(task.outgoing),
        in_(task.incoming),
        sendable_(task.ready_bytes) {}

  [[nodiscard]] bool complete() const { return sent_all() && received_all(); }

  Result<bool> pump_out() {
    if (header_sent_ < sizeof(RingHeader)) {
      return send_header();
    }
    bool progress = false;
    while (!out_.at_end() && sendable_ > 0) {
      const Moved sent =
          send_some(sockets_.to_next.get(), out_.data(), std::min(out_.left(), sendable_));
      if (sent.closed) {
        return lost(neighbours_.next);
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
    if (header_received_ < sizeof(RingHeader)) {
      return receive_header();
    }
    if (in_.at_end()) {
      return false;
    }
    return in_.index() < task_.reduced ? receive_and_reduce() : receive_in_place();
  }

  /// What poll() has to watch; the abort descriptor is the caller's.
  void watch(pollfd& out, pollfd& in) const {
    const bool can_send = header_sent_ < sizeof(RingHeader) || (!out_.at_end() && sendable_ > 0);
    // Without anything to send yet, still notice that the next member is gone. Once all is sent it
    // may go: it is then done with us.
    out.fd = sent_all() ? -1 : sockets_.to_next.get();
    out.events = static_cast<short>(POLLRDHUP | (can_send ? POLLOUT : 0));
    in.fd = received_all() ? -1 : sockets_.from_previous.get();
    in.events = POLLIN;
  }

  [[nodiscard]] Error lost(MemberId who) const {
    return {Errc::kPeerLost, fmt::format("the connection to member {} broke", value(who)), who};
  }

 private:
  [[nodiscard]] bool sent_all() const {
    return header_sent_ == sizeof(RingHeader) && out_.at_end();
  }
  [[nodiscard]] bool received_all() const {
    return header_received_ == sizeof(RingHeader) && in_.at_end();
  }

  Result<bool> send_header() {
    const auto* const raw = reinterpret_cast<const std::byte*>(&task_.header);
    const Moved sent =
        send_some(sockets_.to_next.get(), raw + header_sent_, sizeof(RingHeader) - header_sent_);
    if (sent.closed) {
      return lost(neighbours_.next);
    }
    header_sent_ += sent.bytes;
    return sent.bytes > 0;
  }

  Result<bool> receive_header() {
    auto* const raw = reinterpret_cast<std::byte*>(&header_);
    const Moved got = receive_some(sockets_.from_previous.get(), raw + header_received_,
                                   sizeof(RingHeader) - header_received_);
    if (got.closed) {
      return lost(neighbours_.previous);
    }
    header_received_ += got.bytes;
    if (header_received_ == sizeof(RingHeader) && header_ != task_.header) {
      return Error{
          Errc::kCorrupt,
          fmt::format("member {} runs operation {} of another kind or size than our "
                      "operation {}",
                      value(neighbours_.previous), header_.sequence, task_.header.sequence),
          neighbours_.previous};
    }
    return got.bytes > 0;
  }

  Result<bool> receive_in_place() {
    const Moved got =
        receive_some(sockets_.from_previous.get(), in_.data(), std::min(in_.left(), kPieceBytes));
    if (got.closed) {
      return lost(neighbours_.previous);
    }
    in_.advance(got.bytes);
    sendable_ += got.bytes;
    return got.bytes > 0;
  }

  Result<bool> receive_and_reduce() {
    const std::size_t want = std::min(in_.left(), scratch_.size()) - held_;
    const Moved got = receive_some(sockets_.from_previous.get(), scratch_.data() + held_, want);
    if (got.closed) {
      return lost(neighbours_.previous);
    }
    held_ += got.bytes;
    const std::size_t element = size_of(task_.type);
    const std::size_t whole = held_ / element * element;
    if (whole > 0) {
      reduce(in_.data(), scratch_.data(), whole / element, task_.type, task_.op);
      in_.advance(whole);
      sendable_ += whole;
      held_ -= whole;
      std::memmove(scratch_.data(), scratch_.data() + whole, held_);  // part of an element
    }
    return got.bytes > 0;
  }

  const RingTask& task_;
  const TcpLinkSockets& sockets_;
  std::span<std::byte> scratch_;
  const RingNeighbours neighbours_;
  Cursor out_;
  Cursor in_;
  std::size_t sendable_;  // bytes of the outgoing stream that are ready and not sent
  std::size_t held_ = 0;  // bytes in scratch_ that are not reduced yet
  RingHeader header_;     // the previous member's
  std::size_t header_sent_ = 0;
  std::size_t header_received_ = 0;
};

class TcpRingLink final : public RingLink {
 public:
  TcpRingLink(TcpLinkSockets sockets, RingNeighbours neighbours,
              std::shared_ptr<AbortSignal> signal)
      : sockets_(std::move(sockets)), neighbours_(neighbours), signal_(std::move(signal)) {}

  Result<void> run(const RingTask& task, std::optional<Instant> deadline) override {
    TcpRun run(task, sockets_, scratch_.span(), neighbours_);
    while (!run.complete()) {
      if (signal_->raised()) {
        return Error{Errc::kAborted, "the group was aborted"};
      }
      const Result<bool> in = run.pump_in();
      if (!in.ok()) {
        return in.error();
      }
      const Result<bool> out = run.pump_out();
      if (!out.ok()) {
        return out.error();
      }
      if (!in.value() && !out.value()) {
        if (Result<void> slept = sleep(run, deadline); !slept.ok()) {
          return slept;
        }
      }
    }
    return {};
  }

  void abort() noexcept override { signal_->raise(); }

 private:
  // Until a socket is ready, the group is aborted or the deadline has passed.
  Result<void> sleep(const TcpRun& run, std::optional<Instant> deadline) {
    std::array<pollfd, 3> watched{};
    run.watch(watched[0], watched[1]);
    watched[2] = {.fd = signal_->fd(), .events = POLLIN, .revents = 0};
    const int timeout = deadline ? poll_timeout_ms(*deadline) : -1;
    const int ready = ::poll(watched.data(), watched.size(), timeout);
    if (ready == 0 && deadline && monotonic_now() >= *deadline) {
      return Error{Errc::kDeadline, "the ring made no progress"};
    }
    if (ready > 0 && watched[2].revents == 0 && watched[1].revents == 0 &&
        (watched[0].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
      return run.lost(neighbours_.next);
    }
    return {};
  }

  const TcpLinkSockets sockets_;
  const RingNeighbours neighbours_;
  const std::shared_ptr<AbortSignal> signal_;  // the transport keeps it while it forms the link
  AlignedBuffer<std::byte> scratch_{kPieceBytes};
};

}  // namespace

std::unique_ptr<RingLink> make_tcp_ring_link(TcpLinkSockets sockets, RingNeighbours neighbours,
                                             std::shared_ptr<AbortSignal> signal) {
  return std::make_unique<TcpRingLink>(std::move(sockets), neighbours, std::move(signal));
}

}  // namespace mayfly::collectives
