#include "collectives/ring_group.hpp"

#include <cstring>
#include <utility>

#include "collectives/operation_queue.hpp"
#include "collectives/plan/reduce_kernels.hpp"
#include "collectives/ring_task.hpp"

namespace mayfly::collectives {
namespace {

class RingGroup final : public Group {
 public:
  RingGroup(ViewId view, RingPlace place, std::unique_ptr<RingLink> link)
      : view_(view), place_(place), queue_(std::make_shared<OperationQueue>(std::move(link))) {}
  ~RingGroup() override { queue_->close(); }

  ViewId view() const override { return view_; }
  Rank rank() const override { return place_.rank; }
  std::uint32_t size() const override { return place_.size; }

  std::unique_ptr<Work> all_reduce(void* data, std::size_t count, DataType type,
                                   ReduceOp op) override {
    return queue_->start(new_all_reduce(data, count, type, op));
  }
  Result<void> all_reduce_blocking(void* data, std::size_t count, DataType type, ReduceOp op,
                                   Instant deadline) override {
    return queue_->run(new_all_reduce(data, count, type, op), deadline);
  }
  std::unique_ptr<Work> reduce_scatter(void* data, std::size_t count, DataType type,
                                       ReduceOp op) override {
    const std::span bytes(static_cast<std::byte*>(data), count * size_of(type));
    auto operation = std::make_shared<Operation>();
    operation->task = reduce_scatter_task(place_, ++sequence_, bytes, type, op);
    return queue_->start(std::move(operation));
  }
  std::unique_ptr<Work> broadcast(std::span<std::byte> data, Rank root) override {
    ENSURE(value(root) < place_.size, "the root of a broadcast is a member of the group");
    auto operation = std::make_shared<Operation>();
    operation->task = broadcast_task(place_, ++sequence_, data, root);
    return queue_->start(std::move(operation));
  }
  std::unique_ptr<Work> all_gather(ByteSpan mine, std::span<std::byte> all) override {
    ENSURE(all.size() == mine.size() * place_.size,
           "all_gather needs room for every member's part");
    if (!mine.empty()) {
      std::memmove(all.data() + mine.size() * value(place_.rank), mine.data(), mine.size());
    }
    auto operation = std::make_shared<Operation>();
    operation->task = all_gather_task(place_, ++sequence_, all);
    return queue_->start(std::move(operation));
  }
  std::unique_ptr<Work> barrier() override {
    auto operation = std::make_shared<Operation>();
    operation->task = barrier_task(place_, ++sequence_, operation->scratch);
    return queue_->start(std::move(operation));
  }

  void abort() noexcept override { queue_->abort(); }

 private:
  std::shared_ptr<Operation> new_all_reduce(void* data, std::size_t count, DataType type,
                                            ReduceOp op) {
    const std::span bytes(static_cast<std::byte*>(data), count * size_of(type));
    auto operation = std::make_shared<Operation>();
    if (place_.size == 1) {
      reduce_alone(data, count, type, op);
    }
    operation->task = all_reduce_task(place_, ++sequence_, bytes, type, op);
    return operation;
  }

  const ViewId view_;
  const RingPlace place_;
  const std::shared_ptr<OperationQueue> queue_;  // every Work shares it
  std::uint64_t sequence_ = 0;                   // of the thread that starts operations
};

}  // namespace

std::unique_ptr<Group> make_ring_group(ViewId view, Rank rank, std::uint32_t size,
                                       std::unique_ptr<RingLink> link) {
  ENSURE((size == 1) == (link == nullptr), "a group of several members needs a link, one does not");
  return std::make_unique<RingGroup>(view, RingPlace{size, rank}, std::move(link));
}

Result<std::int32_t> run_first_barrier(RingLink& link, std::uint32_t size, Rank rank,
                                       std::int32_t vote, Instant deadline) {
  std::int32_t votes = vote;
  const RingTask barrier = barrier_task({size, rank}, 0, votes);
  link.begin(barrier);
  const Result<bool> met = link.advance(deadline);
  if (!met.ok()) {
    return met.error();
  }
  if (!met.value()) {
    return Error{Errc::kDeadline, "the members did not meet in time"};
  }
  return votes;
}

RingNeighbours neighbours_of(const std::vector<Peer>& peers, Rank rank) {
  const std::size_t size = peers.size();
  return {.previous = peers[(value(rank) + size - 1) % size].member,
          .next = peers[(value(rank) + 1) % size].member};
}

Result<void> check_spec(const GroupSpec& spec) {
  if (value(spec.rank) >= spec.peers.size()) {
    return Error{Errc::kInvalidInput, "the group's own rank is not among its peers"};
  }
  return {};
}

}  // namespace mayfly::collectives
