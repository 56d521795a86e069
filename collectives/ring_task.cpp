#include "collectives/ring_task.hpp"

#include "base/random.hpp"
#include "collectives/plan/ring_schedule.hpp"

namespace mayfly::collectives {
namespace {

enum class Kind : std::uint64_t {
  kAllReduce = 1,
  kBroadcast,
  kAllGather,
  kBarrier,
  kReduceScatter
};

std::uint64_t shape_of(Kind kind, std::uint64_t detail, std::uint64_t bytes) {
  return mix64(mix64(mix64(static_cast<std::uint64_t>(kind)) ^ detail) ^ bytes);
}

RingTask task_of(const RingSchedule& schedule, std::span<std::byte> data, std::size_t element) {
  RingTask task;
  const auto piece = [&](const Segment& segment) {
    return RingTask::Piece{data.data() + segment.offset * element, segment.count * element};
  };
  for (const Segment& segment : schedule.outgoing) {
    task.outgoing.push_back(piece(segment));
  }
  for (const Segment& segment : schedule.incoming) {
    task.incoming.push_back(piece(segment));
  }
  task.reduced = schedule.reduced;
  if (schedule.starts && !task.outgoing.empty()) {
    task.ready_bytes = task.outgoing.front().bytes;
  }
  return task;
}

RingTask reduction_task(Kind kind, const RingSchedule& schedule, std::uint64_t sequence,
                        std::span<std::byte> data, DataType type, ReduceOp op) {
  RingTask task = task_of(schedule, data, size_of(type));
  const auto detail = static_cast<std::uint64_t>(type) * 16 + static_cast<std::uint64_t>(op);
  task.header = {sequence, shape_of(kind, detail, data.size())};
  task.type = type;
  task.op = op;
  return task;
}

}  // namespace

RingTask all_reduce_task(RingPlace place, std::uint64_t sequence, std::span<std::byte> data,
                         DataType type, ReduceOp op) {
  const std::size_t count = data.size() / size_of(type);
  RingTask task =
      reduction_task(Kind::kAllReduce, all_reduce_schedule(count, place.size, place.rank), sequence,
                     data, type, op);
  task.is_all_reduce = true;
  task.all_reduced = data;
  return task;
}

RingTask reduce_scatter_task(RingPlace place, std::uint64_t sequence, std::span<std::byte> data,
                             DataType type, ReduceOp op) {
  const std::size_t count = data.size() / size_of(type);
  return reduction_task(Kind::kReduceScatter,
                        reduce_scatter_schedule(count, place.size, place.rank), sequence, data,
                        type, op);
}

RingTask broadcast_task(RingPlace place, std::uint64_t sequence, std::span<std::byte> data,
                        Rank root) {
  RingTask task = task_of(broadcast_schedule(data.size(), place.size, place.rank, root), data, 1);
  task.header = {sequence, shape_of(Kind::kBroadcast, value(root), data.size())};
  return task;
}

RingTask all_gather_task(RingPlace place, std::uint64_t sequence, std::span<std::byte> all) {
  RingTask task =
      task_of(all_gather_schedule(all.size() / place.size, place.size, place.rank), all, 1);
  task.header = {sequence, shape_of(Kind::kAllGather, 0, all.size())};
  return task;
}

RingTask barrier_task(RingPlace place, std::uint64_t sequence, std::int32_t& scratch) {
  RingTask task = all_reduce_task(place, sequence, std::as_writable_bytes(std::span(&scratch, 1)),
                                  DataType::kInt32, ReduceOp::kSum);
  task.header.shape = shape_of(Kind::kBarrier, 0, 0);
  return task;
}

}  // namespace mayfly::collectives
