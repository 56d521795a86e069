#include "collectives/nccl/nccl_group.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <thread>
#include <utility>

#include "base/check.hpp"

namespace mayfly::collectives {
namespace {

// Members destroy the group of a view within moments of each other when nothing is wrong.
constexpr Duration kClosingMax = seconds(3);

class NcclWork final : public Work {
 public:
  explicit NcclWork(std::shared_ptr<DeviceOperation> operation)
      : operation_(std::move(operation)) {}
  ~NcclWork() override { operation_->wait_finished(); }

  Result<void> wait(Instant deadline) override { return operation_->wait_finished(deadline); }
  Instant finished_at() const override { return operation_->finished_at(); }

 private:
  std::shared_ptr<DeviceOperation> operation_;
};

class NcclGroup final : public DeviceGroup {
 public:
  NcclGroup(ViewId view, Rank rank, std::uint32_t size, std::shared_ptr<NcclRuntime> runtime,
            std::unique_ptr<LiveComm> comm)
      : view_(view),
        rank_(rank),
        size_(size),
        runtime_(std::move(runtime)),
        signal_(comm->signal()),
        thread_([this, owned = std::move(comm)]() mutable { run(std::move(owned)); }) {
    ::pthread_setname_np(thread_.native_handle(), "mayfly-comm");
  }
  ~NcclGroup() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    signal_->notify();
    thread_.join();
  }

  ViewId view() const override { return view_; }
  Rank rank() const override { return rank_; }
  std::uint32_t size() const override { return size_; }

  std::unique_ptr<Work> all_reduce(void* data, std::size_t count, DataType type,
                                   ReduceOp op) override {
    return reduce({.kind = DeviceTask::Kind::kAllReduce,
                   .from = data,
                   .to = data,
                   .count = count,
                   .type = type,
                   .op = op});
  }
  std::unique_ptr<Work> broadcast(std::span<std::byte> data, Rank root) override {
    ENSURE(value(root) < size_, "the root of a broadcast is a member of the group");
    return start({.kind = DeviceTask::Kind::kBroadcast,
                  .from = data.data(),
                  .to = data.data(),
                  .count = data.size(),
                  .root = value(root)});
  }
  std::unique_ptr<Work> all_gather(ByteSpan mine, std::span<std::byte> all) override {
    ENSURE(all.size() == mine.size() * size_, "all_gather needs room for every member's part");
    const std::byte* const own_place = all.data() + mine.size() * value(rank_);
    ENSURE(mine.empty() || mine.data() == own_place || mine.data() + mine.size() <= all.data() ||
               all.data() + all.size() <= mine.data(),
           "all_gather's own part is in its place or apart from all");
    return start({.kind = DeviceTask::Kind::kAllGather,
                  .from = mine.data(),
                  .to = all.data(),
                  .count = mine.size()});
  }
  std::unique_ptr<Work> barrier() override {
    void* const word = runtime_->api().scratch_word();
    return start({.from = word, .to = word, .count = 1});
  }

  void abort() noexcept override { signal_->abort(); }

  Result<void> follow(DeviceStream stream) override {
    LentEvent gate(*runtime_);
    if (!gate || runtime_->api().record_on(stream, gate.get()) != NcclStatus::kSuccess) {
      return Error{Errc::kIo,
                   fmt::format("cannot record an event on {}: {}", runtime_->api().device_name(),
                               runtime_->api().explain(nullptr))};
    }
    gates_.push_back(std::move(gate));
    return {};
  }

 private:
  std::unique_ptr<Work> reduce(const DeviceTask& task) {
    if (Result<void> supported = check_reduction(task.type, task.op); !supported.ok()) {
      auto operation = std::make_shared<DeviceOperation>(runtime_, task, std::exchange(gates_, {}));
      operation->finish(std::move(supported));
      return std::make_unique<NcclWork>(std::move(operation));
    }
    return start(task);
  }

  std::unique_ptr<Work> start(DeviceTask task) {
    task.rank = value(rank_);
    task.size = size_;
    auto operation = std::make_shared<DeviceOperation>(runtime_, task, std::exchange(gates_, {}));
    auto work = std::make_unique<NcclWork>(operation);
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(operation));
    }
    signal_->notify();
    return work;
  }

  // The communication thread.
  void run(std::unique_ptr<LiveComm> comm) {
    (void)runtime_->api().bind_thread();  // a device that refuses is found out by the next call
    bool closing = false;
    while (!(closing && comm->over())) {
      closing = take_orders(*comm, closing);
      if (const std::optional<Duration> pause = comm->turn()) {
        signal_->sleep(*pause);
      } else if (!(closing && comm->over())) {
        signal_->sleep();
      }
    }
  }

  // Returns whether the group is being destroyed.
  bool take_orders(LiveComm& comm, bool closing) {
    std::vector<std::shared_ptr<DeviceOperation>> started;
    bool close_now = false;
    {
      const std::lock_guard lock(mutex_);
      started.swap(queue_);
      close_now = closing_ && !closing;
    }
    for (std::shared_ptr<DeviceOperation>& operation : started) {
      comm.submit(std::move(operation));
    }
    if (close_now) {
      comm.close(monotonic_now() + kClosingMax);
    }
    return closing || close_now;
  }

  const ViewId view_;
  const Rank rank_;
  const std::uint32_t size_;
  const std::shared_ptr<NcclRuntime> runtime_;
  const std::shared_ptr<CommSignal> signal_;  // shared with the communicator
  std::vector<LentEvent> gates_;              // of the next operation; the starting thread's

  std::mutex mutex_;
  std::vector<std::shared_ptr<DeviceOperation>> queue_;  // guarded by mutex_
  bool closing_ = false;                                 // guarded by mutex_
  std::thread thread_;                                   // the last: it uses all of the above
};

}  // namespace

Result<void> check_reduction(DataType type, ReduceOp op) {
  if (type == DataType::kInt16) {
    return Error{Errc::kUnsupported, "NCCL has no 16-bit integers: reduce int32 instead"};
  }
  if (op == ReduceOp::kMax && (type == DataType::kFloat16 || type == DataType::kBFloat16)) {
    return Error{Errc::kUnsupported,
                 "NCCL's maximum of 16-bit floats loses NaNs: take it in fp32 instead"};
  }
  return {};
}

std::unique_ptr<Group> make_nccl_group(ViewId view, Rank rank, std::uint32_t size,
                                       std::shared_ptr<NcclRuntime> runtime,
                                       std::unique_ptr<LiveComm> comm) {
  return std::make_unique<NcclGroup>(view, rank, size, std::move(runtime), std::move(comm));
}

}  // namespace mayfly::collectives
