// A ring of messages over MPI_Isend and MPI_Irecv.
//
// Messages are received into, and sent from, memory of the ring's own, never the caller's: if the
// rank at the other end is dead, a message can be neither completed nor cancelled, and MPI may
// access its memory at any later time.

#include <atomic>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "base/try_assign.hpp"
#include "collectives/mpi/mpi_engine.hpp"
#include "collectives/plan/reduce_kernels.hpp"

namespace mayfly::collectives {
namespace {

// The bytes of one message: so few that a piece stays in the cache between being received, reduced
// and sent on.
constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
// Messages in transit in each direction.
constexpr std::size_t kWindow = 4;

enum class Progress : std::uint8_t { kIdle, kMoved, kDone };

/// Messages to or from one neighbour, in order, each in memory of this class.
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
  /// True if the oldest message is complete; then its memory is front() until pop().
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

/// An operation that has begun. If one that is not complete is destroyed, it is left at once: MPI
/// never accesses the operation's memory afterwards.
class RingRun {
 public:
  RingRun(const Operation& operation, std::uint32_t size, Rank rank, Lane& in, Lane& out)
      : operation_(operation),
        task_(ring_task(operation, size, rank, kPieceBytes)),
        in_(in),
        out_(out),
        ready_(task_.ready_bytes) {}
  ~RingRun() {
    in_.abandon();
    out_.abandon();
  }

  RingRun(const RingRun&) = delete;
  RingRun& operator=(const RingRun&) = delete;

  /// Continues as far as possible without waiting.
  Result<Progress> advance() {
    moved_ = false;
    for (const auto step : {&RingRun::post_receives, &RingRun::send_what_is_ready,
                            &RingRun::take_what_arrived, &RingRun::forget_what_was_sent}) {
      TRY((this->*step)());
    }
    const bool done = taken_ == task_.incoming.size() && header_taken_ &&
                      sent_ == task_.outgoing.size() && out_.is_empty();
    return done ? Progress::kDone : moved_ ? Progress::kMoved : Progress::kIdle;
  }

 private:
  Result<void> post_receives() {
    if (!header_posted_) {
      header_posted_ = true;
      TRY(in_.receive(sizeof(OperationHeader)));
    }
    while (posted_ < task_.incoming.size() && !in_.is_full()) {
      TRY(in_.receive(task_.incoming[posted_++].bytes));
    }
    return {};
  }

  Result<void> send_what_is_ready() {
    if (!header_sent_) {
      header_sent_ = true;
      TRY(out_.send(std::as_bytes(std::span(&operation_.header, 1))));
    }
    while (sent_ < task_.outgoing.size() && !out_.is_full() &&
           task_.outgoing[sent_].bytes <= ready_) {
      const RingTask::Piece& piece = task_.outgoing[sent_++];
      ready_ -= piece.bytes;
      moved_ = true;
      TRY(out_.send({piece.data, piece.bytes}));
    }
    return {};
  }

  Result<void> take_what_arrived() {
    while (!in_.is_empty()) {
      TRY_ASSIGN(const bool arrived, in_.front_done());
      if (!arrived) {
        break;
      }
      moved_ = true;
      if (header_taken_) {
        take(task_.incoming[taken_++]);
      } else {
        TRY(take_header());
      }
      in_.pop();
      TRY(post_receives());
      TRY(send_what_is_ready());
    }
    return {};
  }

  Result<void> take_header() {
    header_taken_ = true;
    OperationHeader theirs;
    std::memcpy(&theirs, in_.front(), sizeof theirs);
    return check_header(operation_.header, theirs, in_.member());
  }

  void take(const RingTask::Piece& piece) {
    if (piece.is_reduced) {
      reduce(piece.data, in_.front(), piece.bytes / size_of(operation_.type), operation_.type,
             operation_.op);
    } else {
      std::memcpy(piece.data, in_.front(), piece.bytes);
    }
    ready_ += piece.bytes;
  }

  Result<void> forget_what_was_sent() {
    while (!out_.is_empty()) {
      TRY_ASSIGN(const bool has_left, out_.front_done());
      if (!has_left) {
        break;
      }
      out_.pop();
      moved_ = true;
      TRY(send_what_is_ready());
    }
    return {};
  }

  const Operation& operation_;
  const RingTask task_;
  Lane& in_;
  Lane& out_;
  std::size_t posted_ = 0;  // number of posted receives
  std::size_t taken_ = 0;   // incoming pieces that are in the operation's memory
  std::size_t sent_ = 0;    // outgoing pieces passed to MPI
  std::size_t ready_;       // bytes of the outgoing stream that are ready and not sent
  bool header_posted_ = false;
  bool header_taken_ = false;
  bool header_sent_ = false;
  bool moved_ = false;
};

class RingEngine final : public GroupEngine {
 public:
  RingEngine(MpiWorld& world, const MpiPlace& place, ViewId view)
      : world_(world),
        rank_(place.rank),
        size_(place.size),
        in_(lane(world, place, place.size - 1, view)),
        out_(lane(world, place, 1, view)) {}

  void begin(const Operation& operation) override {
    run_.emplace(operation, size_, rank_, in_, out_);
  }

  Result<bool> advance(std::optional<Instant> until) override {
    Result<bool> done = poll(until);
    if (!done.ok() || done.value()) {
      run_.reset();
    }
    return done;
  }

  bool returns_by(std::optional<Instant> /*until*/) const override { return true; }
  void abort() noexcept override { aborted_.store(true, std::memory_order_release); }

  bool settles() const override { return true; }
  void settle() override { world_.settle(); }

 private:
  // The messages to the member that is `ahead` places after this one in the ring.
  static Lane lane(MpiWorld& world, const MpiPlace& place, std::uint32_t ahead, ViewId view) {
    const std::uint32_t other = (value(place.rank) + ahead) % place.size;
    return {world, place.world_ranks[other], place.peers[other].member,
            world.tag_of(view, kDataTag)};
  }

  Result<bool> poll(std::optional<Instant> until) {
    PollBackoff backoff;
    while (!aborted_.load(std::memory_order_acquire)) {
      const Result<Progress> progress = run_->advance();
      if (!progress.ok()) {
        world_.spoil();
        return progress.error();
      }
      if (progress.value() == Progress::kDone) {
        return true;
      }
      if (progress.value() == Progress::kMoved) {
        backoff.moved();
        continue;
      }
      if (until && monotonic_now() >= *until) {
        return false;
      }
      backoff.pause();
    }
    return Error{Errc::kAborted, "the group was aborted"};
  }

  MpiWorld& world_;
  const Rank rank_;
  const std::uint32_t size_;
  Lane in_;
  Lane out_;
  std::optional<RingRun> run_;
  std::atomic<bool> aborted_{false};
};

}  // namespace

std::unique_ptr<GroupEngine> make_ring_engine(MpiWorld& world, const MpiPlace& place, ViewId view) {
  return std::make_unique<RingEngine>(world, place, view);
}

}  // namespace mayfly::collectives
