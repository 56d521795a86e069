#include "collectives/mpi/mpi_group.hpp"

#include <cstring>
#include <utility>

#include "collectives/mpi/mpi_queue.hpp"

namespace mayfly::collectives {
namespace {

class MpiWork final : public Work {
 public:
  MpiWork(std::shared_ptr<MpiQueue> queue, std::shared_ptr<MpiOperation> operation)
      : queue_(std::move(queue)), operation_(std::move(operation)) {}
  ~MpiWork() override {
    constexpr Duration kSlice = seconds(60);
    while (!ended_) {
      (void)wait(monotonic_now() + kSlice);
    }
  }
  Result<void> wait(Instant deadline) override {
    Result<void> outcome = queue_->wait(*operation_, deadline);
    ended_ = outcome.ok() || outcome.error().code != Errc::kDeadline;
    return outcome;
  }
  Instant finished_at() const override { return queue_->finished_at(*operation_); }

 private:
  const std::shared_ptr<MpiQueue> queue_;  // shared with the group, which may be gone first
  const std::shared_ptr<MpiOperation> operation_;
  bool ended_ = false;
};

class MpiGroup final : public Group {
 public:
  MpiGroup(ViewId view, Rank rank, std::uint32_t size, std::shared_ptr<MpiQueue> queue)
      : view_(view), rank_(rank), size_(size), queue_(std::move(queue)) {}
  ~MpiGroup() override { queue_->close(); }

  ViewId view() const override { return view_; }
  Rank rank() const override { return rank_; }
  std::uint32_t size() const override { return size_; }

  std::unique_ptr<Work> all_reduce(void* data, std::size_t count, DataType type,
                                   ReduceOp op) override {
    return start({.kind = MpiTask::Kind::kAllReduce,
                  .data = {static_cast<std::byte*>(data), count * size_of(type)},
                  .type = type,
                  .op = op});
  }
  std::unique_ptr<Work> reduce_scatter(void* data, std::size_t count, DataType type,
                                       ReduceOp op) override {
    return start({.kind = MpiTask::Kind::kReduceScatter,
                  .data = {static_cast<std::byte*>(data), count * size_of(type)},
                  .type = type,
                  .op = op});
  }
  std::unique_ptr<Work> broadcast(std::span<std::byte> data, Rank root) override {
    ENSURE(value(root) < size_, "the root of a broadcast is a member of the group");
    return start({.kind = MpiTask::Kind::kBroadcast, .data = data, .root = root});
  }
  std::unique_ptr<Work> all_gather(ByteSpan mine, std::span<std::byte> all) override {
    ENSURE(all.size() == mine.size() * size_, "all_gather needs room for every member's part");
    if (!mine.empty()) {
      std::memmove(all.data() + mine.size() * value(rank_), mine.data(), mine.size());
    }
    return start({.kind = MpiTask::Kind::kAllGather, .data = all});
  }
  std::unique_ptr<Work> barrier() override {
    return start({.kind = MpiTask::Kind::kBarrier, .data = {}});
  }

  void abort() noexcept override { queue_->abort(); }

 private:
  std::unique_ptr<Work> start(MpiTask task) {
    task.sequence = ++sequence_;
    auto operation = std::make_shared<MpiOperation>();
    operation->task = task;
    queue_->start(operation);
    return std::make_unique<MpiWork>(queue_, std::move(operation));
  }

  const ViewId view_;
  const Rank rank_;
  const std::uint32_t size_;
  const std::shared_ptr<MpiQueue> queue_;  // shared with every Work, which may outlive the group
  std::uint64_t sequence_ = 0;             // of the thread that starts operations
};

}  // namespace

std::unique_ptr<Group> make_mpi_group(ViewId view, Rank rank, std::uint32_t size,
                                      std::shared_ptr<MpiQueue> queue) {
  return std::make_unique<MpiGroup>(view, rank, size, std::move(queue));
}

}  // namespace mayfly::collectives
