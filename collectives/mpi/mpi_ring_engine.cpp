#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "base/random.hpp"
#include "collectives/mpi/mpi_engine.hpp"
#include "collectives/plan/reduce_kernels.hpp"
#include "collectives/plan/ring_schedule.hpp"

// Messages are received into, and sent from, memory of the ring's own, never the caller's: a
// message whose other end is dead can be neither finished nor taken back, and MPI may come back to
// its memory at any time.

namespace mayfly::collectives {
namespace {

// Of one message. Small enough for a piece to stay in cache between being received, reduced and
// sent on.
constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
// Messages under way in each direction.
constexpr std::size_t kWindow = 4;

// Goes ahead of every operation's data, so that members that do not run the same operation find
// out before they mix up their numbers.
struct Header {
  std::uint64_t sequence = 0;
  std::uint64_t shape = 0;

  friend bool operator==(const Header&, const Header&) = default;
};

Header header_of(const MpiTask& task) {
  const std::uint64_t detail = value(task.root) * 256ULL +
                               static_cast<std::uint64_t>(task.type) * 16 +
                               static_cast<std::uint64_t>(task.op);
  const std::uint64_t kind = mix64(static_cast<std::uint64_t>(task.kind));
  return {task.sequence, mix64(mix64(kind ^ detail) ^ task.data.size())};
}

// A range of the task's memory that travels as one message.
struct Piece {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool is_reduced = false;  // into what is there, when it has come in
};

std::vector<Piece> pieces_of(const std::vector<Segment>& segments, std::size_t reduced,
                             std::span<std::byte> data, std::size_t element) {
  std::vector<Piece> pieces;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    const std::size_t end = (segments[s].offset + segments[s].count) * element;
    for (std::size_t at = segments[s].offset * element; at < end; at += kPieceBytes) {
      pieces.push_back({data.data() + at, std::min(kPieceBytes, end - at), s < reduced});
    }
  }
  return pieces;
}

RingSchedule schedule_of(const MpiTask& task, std::uint32_t size, Rank rank) {
  switch (task.kind) {
    case MpiTask::Kind::kAllReduce:
      return all_reduce_schedule(task.data.size() / size_of(task.type), size, rank);
    case MpiTask::Kind::kReduceScatter:
      return reduce_scatter_schedule(task.data.size() / size_of(task.type), size, rank);
    case MpiTask::Kind::kBroadcast:
      return broadcast_schedule(task.data.size(), size, rank, task.root);
    case MpiTask::Kind::kAllGather: return all_gather_schedule(task.data.size() / size, size, rank);
    case MpiTask::Kind::kBarrier: return all_reduce_schedule(1, size, rank);
  }
  UNREACHABLE("a kind of operation outside its enumerators");
}

bool is_reduction(MpiTask::Kind kind) {
  return kind == MpiTask::Kind::kAllReduce || kind == MpiTask::Kind::kReduceScatter ||
         kind == MpiTask::Kind::kBarrier;
}

/// Messages to or from one neighbour, in order, each in memory of our own.
class Lane {
 public:
  Lane(MpiWorld& world, int world_rank, MemberId member, int tag)
      : world_(world), world_rank_(world_rank), member_(member), tag_(tag) {}
  ~Lane() { abandon(); }

  [[nodiscard]] MemberId member() const { return member_; }
  [[nodiscard]] bool is_full() const { return under_way_.size() == kWindow; }
  [[nodiscard]] bool is_empty() const { return under_way_.empty(); }

  Result<void> send(ByteSpan bytes) {
    AbandonedMessage message = next_message();
    if (!bytes.empty()) {
      std::memcpy(message.memory.data(), bytes.data(), bytes.size());
    }
    const int code = ::MPI_Isend(message.memory.data(), static_cast<int>(bytes.size()), MPI_BYTE,
                                 world_rank_, tag_, world_.comm(), &message.request);
    under_way_.push_back(std::move(message));
    return check_mpi(code, "sending", member_);
  }
  Result<void> receive(std::size_t bytes) {
    AbandonedMessage message = next_message();
    const int code = ::MPI_Irecv(message.memory.data(), static_cast<int>(bytes), MPI_BYTE,
                                 world_rank_, tag_, world_.comm(), &message.request);
    under_way_.push_back(std::move(message));
    return check_mpi(code, "receiving", member_);
  }
  /// Whether the oldest message is done; then its memory is front() until pop().
  Result<bool> front_done() {
    int done = 0;
    const int code = ::MPI_Test(&under_way_.front().request, &done, MPI_STATUS_IGNORE);
    TRY(check_mpi(code, "a message", member_));
    return done != 0;
  }
  [[nodiscard]] const std::byte* front() { return under_way_.front().memory.data(); }
  void pop() {
    free_.push_back(std::move(under_way_.front().memory));
    under_way_.pop_front();
  }
  void abandon() {
    for (AbandonedMessage& message : under_way_) {
      world_.abandon(std::move(message));
    }
    under_way_.clear();
  }

 private:
  AbandonedMessage next_message() {
    AbandonedMessage message;
    if (free_.empty()) {
      message.memory = AlignedBuffer<std::byte>(kPieceBytes);
    } else {
      message.memory = std::move(free_.back());
      free_.pop_back();
    }
    return message;
  }

  MpiWorld& world_;
  const int world_rank_;
  const MemberId member_;
  const int tag_;
  std::deque<AbandonedMessage> under_way_;
  std::vector<AlignedBuffer<std::byte>> free_;
};

class RingRun final : public MpiRun {
 public:
  RingRun(const MpiTask& task, std::uint32_t size, Rank rank, Lane& in, Lane& out)
      : task_(task), header_(header_of(task)), in_(in), out_(out) {
    if (task_.kind == MpiTask::Kind::kBarrier) {
      task_.data = std::as_writable_bytes(std::span(&barrier_, 1));
    }
    const RingSchedule schedule = schedule_of(task_, size, rank);
    const std::size_t element = is_reduction(task_.kind) ? size_of(task_.type) : 1;
    outgoing_ = pieces_of(schedule.outgoing, 0, task_.data, element);
    incoming_ = pieces_of(schedule.incoming, schedule.reduced, task_.data, element);
    if (schedule.starts && !schedule.outgoing.empty()) {
      ready_ = schedule.outgoing.front().count * element;
    }
  }
  ~RingRun() override {
    in_.abandon();
    out_.abandon();
  }

  Result<Progress> advance() override {
    moved_ = false;
    for (const auto step : {&RingRun::post_receives, &RingRun::send_what_is_ready,
                            &RingRun::take_what_arrived, &RingRun::forget_what_was_sent}) {
      TRY((this->*step)());
    }
    const bool done =
        taken_ == incoming_.size() && header_taken_ && sent_ == outgoing_.size() && out_.is_empty();
    return done ? Progress::kDone : moved_ ? Progress::kMoved : Progress::kIdle;
  }

 private:
  Result<void> post_receives() {
    if (!header_posted_) {
      header_posted_ = true;
      TRY(in_.receive(sizeof(Header)));
    }
    while (posted_ < incoming_.size() && !in_.is_full()) {
      TRY(in_.receive(incoming_[posted_++].bytes));
    }
    return {};
  }

  Result<void> send_what_is_ready() {
    if (!header_sent_) {
      header_sent_ = true;
      TRY(out_.send(std::as_bytes(std::span(&header_, 1))));
    }
    while (sent_ < outgoing_.size() && !out_.is_full() && outgoing_[sent_].bytes <= ready_) {
      const Piece& piece = outgoing_[sent_++];
      ready_ -= piece.bytes;
      moved_ = true;
      if (Result<void> sent = out_.send({piece.data, piece.bytes}); !sent.ok()) {
        return sent;
      }
    }
    return {};
  }

  Result<void> take_what_arrived() {
    while (!in_.is_empty()) {
      const Result<bool> arrived = in_.front_done();
      if (!arrived.ok()) {
        return arrived.error();
      }
      if (!arrived.value()) {
        break;
      }
      moved_ = true;
      if (header_taken_) {
        take(incoming_[taken_++]);
      } else if (Result<void> same = check_header(); !same.ok()) {
        return same;
      }
      in_.pop();
      TRY(keep_flowing());
    }
    return {};
  }

  Result<void> keep_flowing() {
    TRY(post_receives());
    return send_what_is_ready();
  }

  Result<void> check_header() {
    header_taken_ = true;
    Header theirs;
    std::memcpy(&theirs, in_.front(), sizeof theirs);
    if (theirs == header_) {
      return {};
    }
    return Error{Errc::kCorrupt,
                 "member " + std::to_string(value(in_.member())) + " runs operation " +
                     std::to_string(theirs.sequence) +
                     " of another kind or size than our operation " +
                     std::to_string(header_.sequence),
                 in_.member()};
  }

  void take(const Piece& piece) {
    if (piece.is_reduced) {
      reduce(piece.data, in_.front(), piece.bytes / size_of(task_.type), task_.type, task_.op);
    } else {
      std::memcpy(piece.data, in_.front(), piece.bytes);
    }
    ready_ += piece.bytes;
  }

  Result<void> forget_what_was_sent() {
    while (!out_.is_empty()) {
      const Result<bool> gone = out_.front_done();
      if (!gone.ok()) {
        return gone.error();
      }
      if (!gone.value()) {
        break;
      }
      out_.pop();
      moved_ = true;
      TRY(send_what_is_ready());
    }
    return {};
  }

  MpiTask task_;
  std::int32_t barrier_ = 0;
  const Header header_;
  Lane& in_;
  Lane& out_;
  std::vector<Piece> outgoing_;
  std::vector<Piece> incoming_;
  std::size_t posted_ = 0;  // incoming pieces asked for
  std::size_t taken_ = 0;   // incoming pieces that are where they belong
  std::size_t sent_ = 0;    // outgoing pieces handed to MPI
  std::size_t ready_ = 0;   // bytes of the outgoing stream that may leave and have not
  bool header_posted_ = false;
  bool header_taken_ = false;
  bool header_sent_ = false;
  bool moved_ = false;
};

class MpiRingEngine final : public MpiEngine {
 public:
  MpiRingEngine(MpiWorld& world, const MpiPlace& place, ViewId view)
      : world_(world),
        rank_(place.rank),
        size_(place.size),
        in_(lane(world, place, place.size - 1, view)),
        out_(lane(world, place, 1, view)) {}

  std::unique_ptr<MpiRun> begin(const MpiTask& task) override {
    return std::make_unique<RingRun>(task, size_, rank_, in_, out_);
  }
  bool can_be_stopped() const override { return true; }
  void poke() override {
    world_.sweep();
    int found = 0;
    ::MPI_Iprobe(MPI_ANY_SOURCE, world_.tag_of(ViewId{0}, kHelloTag), world_.comm(), &found,
                 MPI_STATUS_IGNORE);
  }

 private:
  // To the member `ahead` places after us in the ring.
  static Lane lane(MpiWorld& world, const MpiPlace& place, std::uint32_t ahead, ViewId view) {
    const std::uint32_t other = (value(place.rank) + ahead) % place.size;
    return {world, place.world_ranks[other], place.peers[other].member,
            world.tag_of(view, kDataTag)};
  }

  MpiWorld& world_;
  const Rank rank_;
  const std::uint32_t size_;
  Lane in_;
  Lane out_;
};

}  // namespace

std::unique_ptr<MpiEngine> make_ring_engine(MpiWorld& world, const MpiPlace& place, ViewId view) {
  return std::make_unique<MpiRingEngine>(world, place, view);
}

}  // namespace mayfly::collectives
