#include "collectives/group_engine.hpp"

#include <fmt/format.h>

#include <poll.h>
#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/net/sockets.hpp"
#include "base/net/wake_up.hpp"
#include "base/random.hpp"
#include "collectives/plan/ring_schedule.hpp"

namespace mayfly::collectives {
namespace {

RingSchedule schedule_of(const Operation& operation, std::uint32_t size, Rank rank) {
  const std::size_t bytes = operation.data.size();
  switch (operation.kind) {
    case Operation::Kind::kAllReduce:
    case Operation::Kind::kBarrier:
      return all_reduce_schedule(bytes / size_of(operation.type), size, rank);
    case Operation::Kind::kBroadcast: return broadcast_schedule(bytes, size, rank, operation.root);
    case Operation::Kind::kAllGather: return all_gather_schedule(bytes / size, size, rank);
  }
  UNREACHABLE("a kind of operation outside its enumerators");
}

std::vector<RingTask::Piece> pieces_of(const std::vector<Segment>& segments, std::size_t reduced,
                                       std::byte* data, std::size_t element,
                                       std::size_t piece_bytes_max) {
  std::vector<RingTask::Piece> pieces;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    const std::size_t end = (segments[s].offset + segments[s].count) * element;
    for (std::size_t at = segments[s].offset * element; at < end;) {
      const std::size_t bytes = std::min(piece_bytes_max, end - at);
      pieces.push_back({data + at, bytes, s < reduced});
      at += bytes;
    }
  }
  return pieces;
}

}  // namespace

Operation numbered(Operation operation, std::uint64_t sequence) {
  const std::uint64_t detail = value(operation.root) * 256ULL +
                               static_cast<std::uint64_t>(operation.type) * 16 +
                               static_cast<std::uint64_t>(operation.op);
  const std::uint64_t kind = mix64(static_cast<std::uint64_t>(operation.kind));
  operation.header = {sequence, mix64(mix64(kind ^ detail) ^ operation.data.size())};
  return operation;
}

Operation barrier_operation(std::int32_t& scratch, std::uint64_t sequence) {
  return numbered(
      {.kind = Operation::Kind::kBarrier, .data = std::as_writable_bytes(std::span(&scratch, 1))},
      sequence);
}

Result<void> check_header(const OperationHeader& ours, const OperationHeader& theirs,
                          MemberId from) {
  if (ours == theirs) {
    return {};
  }
  return Error{Errc::kCorrupt,
               fmt::format("member {} runs operation {} of another kind or size than our "
                           "operation {}",
                           value(from), theirs.sequence, ours.sequence),
               from};
}

RingTask ring_task(const Operation& operation, std::uint32_t size, Rank rank,
                   std::size_t piece_bytes_max) {
  const RingSchedule schedule = schedule_of(operation, size, rank);
  const std::size_t element = operation.is_reduction() ? size_of(operation.type) : 1;
  std::byte* const data = operation.data.data();
  RingTask task;
  task.outgoing = pieces_of(schedule.outgoing, 0, data, element, piece_bytes_max);
  task.incoming = pieces_of(schedule.incoming, schedule.reduced, data, element, piece_bytes_max);
  if (schedule.starts && !schedule.outgoing.empty()) {
    task.ready_bytes = schedule.outgoing.front().count * element;
  }
  return task;
}

namespace {

class DelayedEngine final : public GroupEngine {
 public:
  DelayedEngine(std::unique_ptr<GroupEngine> engine, DelaySource delay)
      : engine_(std::move(engine)), delay_(std::move(delay)) {}

  void begin(const Operation& operation) override {
    operation_ = &operation;
    due_ = monotonic_now() + delay_();
  }

  Result<bool> advance(std::optional<Instant> until) override {
    if (operation_ != nullptr) {
      if (!wait_until_due(until)) {
        return false;
      }
      engine_->begin(*std::exchange(operation_, nullptr));
    }
    return engine_->advance(until);
  }

  bool returns_by(std::optional<Instant> until) const override {
    return engine_->returns_by(until);
  }

  void abort() noexcept override {
    engine_->abort();  // first: a thread that wakes up begins its operation in the engine
    signal_.raise();
  }

  /// Without the delays, in which the other members wait.
  std::optional<Duration> time_waited() const override { return engine_->time_waited(); }

  bool settles() const override { return engine_->settles(); }
  void settle() override { engine_->settle(); }

 private:
  /// False: `until` is before the end of the delay, and advance() can be called again. An abort
  /// ends the wait, because the engine is aborted, too.
  bool wait_until_due(std::optional<Instant> until) {
    const bool pauses = until && *until < due_ && engine_->returns_by(until);
    const Instant wake = pauses ? *until : due_;
    while (!signal_.raised() && monotonic_now() < wake) {
      pollfd watched{signal_.fd(), POLLIN, 0};
      (void)::poll(&watched, 1, poll_timeout_ms(wake));
    }
    return signal_.raised() || !pauses;
  }

  const std::unique_ptr<GroupEngine> engine_;
  const DelaySource delay_;
  AbortSignal signal_;
  const Operation* operation_ = nullptr;  // an operation that has not begun in the engine
  Instant due_;
};

}  // namespace

std::unique_ptr<GroupEngine> make_delayed_engine(std::unique_ptr<GroupEngine> engine,
                                                 DelaySource delay) {
  return std::make_unique<DelayedEngine>(std::move(engine), std::move(delay));
}

}  // namespace mayfly::collectives
