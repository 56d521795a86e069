#include "collectives/nccl/paired_transport.hpp"

#include <mutex>
#include <utility>

#include "base/check.hpp"
#include "base/try_assign.hpp"

namespace mayfly::collectives {
namespace {

/// Aborts both parts of a group as long as they exist. Any thread.
class BothParts {
 public:
  BothParts(Group& host, Group& device) : host_(&host), device_(&device) {}

  void abort() noexcept {
    const std::lock_guard lock(mutex_);
    if (host_ != nullptr) {
      device_->abort();
      host_->abort();
    }
  }
  /// The group is being destroyed: failures from now on are not reported.
  void end() noexcept {
    const std::lock_guard lock(mutex_);
    host_ = nullptr;
    device_ = nullptr;
  }

 private:
  std::mutex mutex_;
  Group* host_;    // guarded by mutex_
  Group* device_;  // guarded by mutex_
};

/// An operation of one part; its failure aborts both parts.
class PairedWork final : public Work {
 public:
  PairedWork(std::unique_ptr<Work> work, std::shared_ptr<BothParts> both)
      : work_(std::move(work)), both_(std::move(both)) {}

  Result<void> wait(Instant deadline) override {
    Result<void> done = work_->wait(deadline);
    if (!done.ok() && done.error().code != Errc::kDeadline) {
      both_->abort();
    }
    return done;
  }
  Instant finished_at() const override { return work_->finished_at(); }

 private:
  std::unique_ptr<Work> work_;
  std::shared_ptr<BothParts> both_;  // shared with the group, which may be destroyed first
};

/// One part of a pair, for either kind of group.
template <typename Port>
class Part : public Port {
 public:
  Part(Port& group, std::shared_ptr<BothParts> both) : group_(group), both_(std::move(both)) {}

  ViewId view() const override { return group_.view(); }
  Rank rank() const override { return group_.rank(); }
  std::uint32_t size() const override { return group_.size(); }
  std::unique_ptr<Work> all_reduce(void* data, std::size_t count, DataType type,
                                   ReduceOp op) override {
    return paired(group_.all_reduce(data, count, type, op));
  }
  Result<void> all_reduce_blocking(void* data, std::size_t count, DataType type, ReduceOp op,
                                   Instant deadline) override {
    Result<void> done = group_.all_reduce_blocking(data, count, type, op, deadline);
    if (!done.ok()) {  // also after a deadline, because then the part is aborted
      both_->abort();
    }
    return done;
  }
  std::unique_ptr<Work> broadcast(std::span<std::byte> data, Rank root) override {
    return paired(group_.broadcast(data, root));
  }
  std::unique_ptr<Work> all_gather(ByteSpan mine, std::span<std::byte> all) override {
    return paired(group_.all_gather(mine, all));
  }
  std::unique_ptr<Work> barrier() override { return paired(group_.barrier()); }
  void abort() noexcept override { both_->abort(); }

 protected:
  [[nodiscard]] std::unique_ptr<Work> paired(std::unique_ptr<Work> work) {
    return std::make_unique<PairedWork>(std::move(work), both_);
  }

  Port& group_;
  const std::shared_ptr<BothParts> both_;
};

class DevicePart final : public Part<DeviceGroup> {
 public:
  using Part::Part;

  Result<void> follow(DeviceStream stream) override { return group_.follow(stream); }
};

/// Owns both groups.
struct Groups {
  std::unique_ptr<Group> host;
  std::unique_ptr<DeviceGroup> device;
};

class PairedGroup final : private Groups, public Part<Group> {
 public:
  explicit PairedGroup(Groups groups)
      : Groups(std::move(groups)),
        Part(*Groups::host, std::make_shared<BothParts>(*Groups::host, *Groups::device)),
        device_part_(*Groups::device, both_) {}
  ~PairedGroup() override { both_->end(); }

  DeviceGroup* on_device() override { return &device_part_; }

 private:
  DevicePart device_part_;
};

/// Casts a group that was formed to the group in device memory that it is.
std::unique_ptr<DeviceGroup> as_device_group(std::unique_ptr<Group> group) {
  auto* const device = dynamic_cast<DeviceGroup*>(group.get());
  ENSURE(device != nullptr, "the second transport of a pair forms DeviceGroups");
  (void)group.release();
  return std::unique_ptr<DeviceGroup>(device);
}

class PairedTransport final : public Transport {
 public:
  PairedTransport(std::unique_ptr<Transport> host, std::unique_ptr<Transport> device)
      : host_(std::move(host)), device_(std::move(device)) {}

  std::string address() const override { return host_->address(); }

  Result<std::unique_ptr<Group>> form(const GroupSpec& spec, Instant deadline) override {
    TRY_ASSIGN(auto host, host_->form(spec, deadline));
    Result<std::unique_ptr<Group>> device = device_->form(spec, deadline);
    if (!device.ok()) {
      host->abort();
      return device;
    }
    return std::unique_ptr<Group>(std::make_unique<PairedGroup>(
        Groups{std::move(host), as_device_group(std::move(device).value())}));
  }

  void give_up_on(ViewId view) noexcept override {
    host_->give_up_on(view);
    device_->give_up_on(view);
  }

 private:
  const std::unique_ptr<Transport> host_;
  const std::unique_ptr<Transport> device_;
};

}  // namespace

std::unique_ptr<Transport> make_paired_transport(std::unique_ptr<Transport> host,
                                                 std::unique_ptr<Transport> device) {
  return std::make_unique<PairedTransport>(std::move(host), std::move(device));
}

}  // namespace mayfly::collectives
