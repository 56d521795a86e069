#include "collectives/gloo/gloo_ring_link.hpp"

#include <fmt/format.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <span>

#include "base/aligned_buffer.hpp"
#include "base/random.hpp"
#include "base/reason.hpp"
#include "collectives/plan/reduce_kernels.hpp"

namespace mayfly::collectives {
namespace {

using Piece = RingTask::Piece;
using std::chrono::milliseconds;

// Gloo needs two notifications and a thread switch per message, so messages are larger than the tcp
// link's pieces.
constexpr std::size_t kMessageBytes = 512 * 1024;
// Gloo's own timeout is no failure detector: it would also fire on a healthy peer that is busy.
constexpr milliseconds kForever = std::chrono::hours(24 * 7);
constexpr std::uint64_t kHeaderSlot = 1;

// Our part of an exchange that has failed; ends run().
struct Failed : std::exception {
  explicit Failed(Error failure) : error(std::move(failure)) {}
  Error error;
};

std::vector<Piece> split_into_messages(const std::vector<Piece>& pieces) {
  std::vector<Piece> messages;
  for (const Piece& piece : pieces) {
    for (std::size_t at = 0; at < piece.bytes; at += kMessageBytes) {
      messages.push_back({piece.data + at, std::min(kMessageBytes, piece.bytes - at)});
    }
  }
  return messages;
}

struct Neighbour {
  int rank = 0;
  MemberId member{};
};

// A Gloo buffer over some memory, and the waits on it.
class Buffer {
 public:
  Buffer(gloo::Context& context, GlooAborter& aborter, std::span<std::byte> memory,
         std::optional<Instant> deadline)
      : aborter_(aborter),
        buffer_(context.createUnboundBuffer(memory.data(), memory.size())),
        guard_(aborter, *buffer_),
        deadline_(deadline) {}

  void send(Neighbour to, std::uint64_t slot, const std::byte* data, std::size_t bytes) {
    attempt(to, [&] {
      buffer_->send(to.rank, slot, offset_of(data), bytes);
      return true;
    });
  }
  void receive(Neighbour from, std::uint64_t slot, const std::byte* data, std::size_t bytes) {
    attempt(from, [&] {
      buffer_->recv(from.rank, slot, offset_of(data), bytes);
      return true;
    });
  }
  void wait_sent(Neighbour to) {
    attempt(to, [&] { return buffer_->waitSend(timeout()); });
  }
  void wait_received(Neighbour from) {
    attempt(from, [&] { return buffer_->waitRecv(timeout()); });
  }

 private:
  std::size_t offset_of(const std::byte* data) const {
    return static_cast<std::size_t>(data - static_cast<const std::byte*>(buffer_->ptr));
  }

  // Translates Gloo's three ways to fail: false, an exception, and an abort that comes in between.
  template <typename Call>
  void attempt(Neighbour with, const Call& call) {
    const Error aborted{Errc::kAborted, "the group was aborted"};
    try {
      if (!aborter_.aborted() && call() && !aborter_.aborted()) {
        return;
      }
    } catch (const std::exception& lost) {
      if (aborter_.aborted()) {
        throw Failed(aborted);
      }
      const bool late = deadline_ && monotonic_now() >= *deadline_;
      throw Failed({late ? Errc::kDeadline : Errc::kPeerLost,
                    fmt::format("member {}: {}", value(with.member), reason_of(lost)),
                    with.member});
    }
    throw Failed(aborted);
  }

  milliseconds timeout() const {
    if (!deadline_) {
      return kForever;
    }
    const auto left = std::chrono::duration_cast<milliseconds>(*deadline_ - monotonic_now());
    return std::max(left + milliseconds(1), milliseconds(1));
  }

  GlooAborter& aborter_;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  GlooAborter::Guard guard_;
  std::optional<Instant> deadline_;
};

// The memory that all pieces of a task lie in.
std::span<std::byte> envelope_of(const RingTask& task) {
  std::byte* first = nullptr;
  std::byte* last = nullptr;
  for (const auto* pieces : {&task.outgoing, &task.incoming}) {
    for (const Piece& piece : *pieces) {
      if (piece.bytes > 0) {
        first = first == nullptr ? piece.data : std::min(first, piece.data);
        last = std::max(last, piece.data + piece.bytes);
      }
    }
  }
  return {first, last};
}

// The neighbours and slot of one run.
struct Route {
  Neighbour next;
  Neighbour previous;
  std::uint64_t slot =
      0;  // differs between operations, so that different ones never mix their data
};

// One run of one task, message by message. Two receives are kept posted, so that one travels while
// the other is reduced.
class GlooRun {
 public:
  GlooRun(const RingTask& task, gloo::Context& context, GlooAborter& aborter,
          std::span<std::byte> scratch, const Route& route, std::optional<Instant> deadline)
      : task_(task),
        route_(route),
        outgoing_(split_into_messages(task.outgoing)),
        incoming_(split_into_messages(task.incoming)),
        header_(task.header),
        header_out_(context, aborter, bytes_of(header_), deadline),
        header_in_(context, aborter, bytes_of(their_header_), deadline),
        memory_(context, aborter, envelope_of(task), deadline),
        halves_{scratch.first(kMessageBytes), scratch.last(kMessageBytes)},
        scratch_{{context, aborter, halves_[0], deadline},
                 {context, aborter, halves_[1], deadline}},
        ready_(task.ready_bytes) {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < task.reduced && i < task.incoming.size(); ++i) {
      bytes += task.incoming[i].bytes;
    }
    reduced_bytes_ = bytes;
  }

  void run() {
    exchange_headers();
    post_receives(0);
    post_sends();
    check_headers();
    for (std::size_t i = 0; i < incoming_.size(); ++i) {
      finish_receive(i);
      ready_ += incoming_[i].bytes;
      post_sends();
      post_receives(i + 1);
    }
    for (std::size_t i = 0; i < outgoing_.size(); ++i) {
      memory_.wait_sent(route_.next);
    }
    header_out_.wait_sent(route_.next);
  }

 private:
  static std::span<std::byte> bytes_of(RingHeader& header) {
    return std::as_writable_bytes(std::span(&header, 1));
  }

  void exchange_headers() {
    header_in_.receive(route_.previous, kHeaderSlot, bytes_of(their_header_).data(),
                       sizeof(RingHeader));
    header_out_.send(route_.next, kHeaderSlot, bytes_of(header_).data(), sizeof(RingHeader));
  }

  void check_headers() {
    header_in_.wait_received(route_.previous);
    if (their_header_ != header_) {
      throw Failed(
          {Errc::kCorrupt,
           fmt::format("member {} runs operation {} of another kind or size than our "
                       "operation {}",
                       value(route_.previous.member), their_header_.sequence, header_.sequence),
           route_.previous.member});
    }
  }

  // Keeps receives posted up to one message ahead of the one that is awaited.
  void post_receives(std::size_t awaited) {
    for (; posted_ < incoming_.size() && posted_ < awaited + 2; ++posted_) {
      const Piece& message = incoming_[posted_];
      const bool reduces = posted_bytes_ < reduced_bytes_;
      Buffer& into = reduces ? scratch_[posted_ % 2] : memory_;
      const std::byte* const at = reduces ? halves_[posted_ % 2].data() : message.data;
      into.receive(route_.previous, route_.slot, at, message.bytes);
      posted_bytes_ += message.bytes;
    }
  }

  void finish_receive(std::size_t i) {
    const Piece& message = incoming_[i];
    if (received_bytes_ < reduced_bytes_) {
      scratch_[i % 2].wait_received(route_.previous);
      reduce(message.data, halves_[i % 2].data(), message.bytes / size_of(task_.type), task_.type,
             task_.op);
    } else {
      memory_.wait_received(route_.previous);
    }
    received_bytes_ += message.bytes;
  }

  void post_sends() {
    for (; sent_ < outgoing_.size() && outgoing_[sent_].bytes <= ready_; ++sent_) {
      memory_.send(route_.next, route_.slot, outgoing_[sent_].data, outgoing_[sent_].bytes);
      ready_ -= outgoing_[sent_].bytes;
    }
  }

  const RingTask& task_;
  const Route route_;
  const std::vector<Piece> outgoing_;
  const std::vector<Piece> incoming_;
  RingHeader header_;
  RingHeader their_header_;
  Buffer header_out_;
  Buffer header_in_;
  Buffer memory_;
  std::span<std::byte> halves_[2];
  Buffer scratch_[2];
  std::size_t reduced_bytes_ = 0;  // of the incoming stream
  std::size_t posted_ = 0;         // incoming messages asked for
  std::size_t posted_bytes_ = 0;
  std::size_t received_bytes_ = 0;
  std::size_t sent_ = 0;  // outgoing messages handed to Gloo
  std::size_t ready_;     // bytes of the outgoing stream that are ready and not sent
};

class GlooRingLink final : public RingLink {
 public:
  GlooRingLink(std::shared_ptr<gloo::rendezvous::Context> context, RingNeighbours neighbours,
               std::shared_ptr<GlooAborter> aborter)
      : context_(std::move(context)), neighbours_(neighbours), aborter_(std::move(aborter)) {}
  ~GlooRingLink() override { aborter_->shut_down(); }

  void begin(const RingTask& task) override { task_ = &task; }

  Result<bool> advance(std::optional<Instant> until) override {
    const int size = context_->size;
    const Route route{.next = {(context_->rank + 1) % size, neighbours_.next},
                      .previous = {(context_->rank + size - 1) % size, neighbours_.previous},
                      .slot = mix64(task_->header.shape ^ mix64(task_->header.sequence))};
    try {
      GlooRun(*task_, *context_, *aborter_, scratch_.span(), route, until).run();
    } catch (const Failed& failed) {
      return failed.error;
    } catch (const std::exception& failed) {  // Gloo refuses the buffers themselves
      return Error{Errc::kIo, reason_of(failed)};
    }
    return true;
  }

  bool can_pause() const override { return false; }

  void abort() noexcept override { aborter_->abort(); }

 private:
  const std::shared_ptr<gloo::rendezvous::Context> context_;  // Gloo's objects share it
  const RingNeighbours neighbours_;
  const RingTask* task_ = nullptr;
  const std::shared_ptr<GlooAborter> aborter_;  // the transport keeps it while it forms the link
  AlignedBuffer<std::byte> scratch_{2 * kMessageBytes};
};

}  // namespace

std::unique_ptr<RingLink> make_gloo_ring_link(std::shared_ptr<gloo::rendezvous::Context> context,
                                              RingNeighbours neighbours,
                                              std::shared_ptr<GlooAborter> aborter) {
  return std::make_unique<GlooRingLink>(std::move(context), neighbours, std::move(aborter));
}

}  // namespace mayfly::collectives
