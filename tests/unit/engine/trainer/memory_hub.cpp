#include "tests/unit/engine/trainer/memory_hub.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "collectives/plan/reduce_kernels.hpp"

namespace mayfly::test_support {

using collectives::DataType;
using collectives::Group;
using collectives::GroupSpec;
using collectives::Peer;
using collectives::ReduceOp;
using collectives::Transport;
using collectives::Work;

namespace {

std::size_t bytes_of(DataType type) {
  switch (type) {
    case DataType::kInt64: return 8;
    case DataType::kFloat32:
    case DataType::kInt32: return 4;
    case DataType::kFloat16:
    case DataType::kBFloat16:
    case DataType::kInt16: return 2;
  }
  return 0;
}

std::chrono::steady_clock::time_point until(Instant deadline) {
  return std::chrono::steady_clock::now() +
         std::chrono::nanoseconds((deadline - monotonic_now()).count());
}

}  // namespace

void PrintTo(Death death, std::ostream* out) {
  *out << (death == Death::kBefore ? "before" : death == Death::kDuring ? "during" : "after");
}

Result<void> MemoryHub::state_of(const Shared& shared, Rank self) const {
  if (shared.aborted.contains(self)) {
    return Error{Errc::kAborted, "the group was aborted"};
  }
  for (const Peer& peer : shared.peers) {
    if (dead_.contains(peer.member)) {
      Error lost{Errc::kPeerLost, "a member is gone"};
      lost.culprit = peer.member;
      return lost;
    }
  }
  return {};
}

void MemoryHub::bury(MemberId member) {
  const std::lock_guard lock(mutex_);
  dead_.insert(member);
  changed_.notify_all();
}

class MemoryGroup final : public Group {
 public:
  MemoryGroup(MemoryHub& hub, std::shared_ptr<MemoryHub::Shared> shared, const GroupSpec& spec)
      : hub_(hub),
        shared_(std::move(shared)),
        view_(spec.view),
        rank_(spec.rank),
        self_(spec.peers[value(spec.rank)].member) {}
  ~MemoryGroup() override { abort(); }

  [[nodiscard]] ViewId view() const override { return view_; }
  [[nodiscard]] Rank rank() const override { return rank_; }
  [[nodiscard]] std::uint32_t size() const override {
    return static_cast<std::uint32_t>(shared_->peers.size());
  }

  std::unique_ptr<Work> all_reduce(void* data, std::size_t count, DataType type,
                                   ReduceOp op) override {
    return begin(data, [=](const std::vector<void*>& buffers) {
      Bytes sum(count * bytes_of(type));
      std::memcpy(sum.data(), buffers[0], sum.size());
      for (std::size_t r = 1; r < buffers.size(); ++r) {
        collectives::reduce(sum.data(), buffers[r], count, type, op);
      }
      return sum;
    });
  }
  std::unique_ptr<Work> broadcast(std::span<std::byte> data, Rank root) override {
    return begin(data.data(), [size = data.size(), root](const std::vector<void*>& buffers) {
      const auto* from = static_cast<const std::byte*>(buffers[value(root)]);
      return Bytes(from, from + size);
    });
  }
  std::unique_ptr<Work> all_gather(ByteSpan mine, std::span<std::byte> all) override {
    std::memcpy(all.data() + mine.size() * value(rank_), mine.data(), mine.size());
    return begin(all.data(), [size = mine.size()](const std::vector<void*>& buffers) {
      Bytes whole(size * buffers.size());
      for (std::size_t r = 0; r < buffers.size(); ++r) {
        std::memcpy(whole.data() + r * size, static_cast<const std::byte*>(buffers[r]) + r * size,
                    size);
      }
      return whole;
    });
  }
  std::unique_ptr<Work> barrier() override {
    return begin(&barrier_, [](const std::vector<void*>&) { return Bytes(1); });
  }
  void abort() noexcept override {
    const std::lock_guard lock(hub_.mutex_);
    shared_->aborted.insert(rank_);
    hub_.changed_.notify_all();
  }

 private:
  /// Computes the result of an operation from the buffers of all ranks.
  using Combine = std::function<Bytes(const std::vector<void*>& buffers)>;

  class Started final : public Work {
   public:
    Started(MemoryGroup& group, std::uint64_t number) : group_(group), number_(number) {}
    ~Started() override {
      if (!was_waited_for_) {
        group_.abort();  // no member may write to the buffer from now on: the caller may free it
      }
    }
    Result<void> wait(Instant deadline) override {
      Result<void> done = group_.wait_for(number_, deadline);
      was_waited_for_ = done.ok() || done.error().code != Errc::kDeadline;
      return done;
    }

   private:
    MemoryGroup& group_;
    const std::uint64_t number_;
    bool was_waited_for_ = false;
  };

  std::unique_ptr<Work> begin(void* data, const Combine& combine) {
    const std::uint64_t number = next_++;
    const std::optional<Death> death = hub_.fate_(self_);
    if (death != Death::kBefore) {
      take_part(number, data, combine, death);
    }
    if (death.has_value()) {
      hub_.died_(self_);
    }
    return std::make_unique<Started>(*this, number);
  }

  /// The last member to arrive computes the result for all. A member that dies here first waits
  /// until all have arrived, so that its death has the effect that the test chose.
  void take_part(std::uint64_t number, void* data, const Combine& combine,
                 std::optional<Death> death) {
    std::unique_lock lock(hub_.mutex_);
    MemoryHub::Operation& operation = shared_->operations[number];
    operation.buffers.resize(size());
    operation.is_complete.resize(size());
    operation.buffers[value(rank_)] = data;
    operation.death = death.has_value() ? death : operation.death;
    if (++operation.arrived == size() && shared_->aborted.empty() &&
        hub_.state_of(*shared_, rank_).ok()) {
      const Bytes result = combine(operation.buffers);
      for (std::size_t r = 0; r < size(); ++r) {
        if (operation.death != Death::kDuring || r % 2 == 0) {
          std::memcpy(operation.buffers[r], result.data(), result.size());
          operation.is_complete[r] = true;
        }
      }
    }
    hub_.changed_.notify_all();
    if (death.has_value()) {
      hub_.changed_.wait(lock, [&] {
        return operation.arrived == size() || !shared_->aborted.empty() ||
               !hub_.state_of(*shared_, rank_).ok();
      });
    }
  }

  Result<void> wait_for(std::uint64_t number, Instant deadline) {
    std::unique_lock lock(hub_.mutex_);
    const auto is_complete = [&] {
      const auto place = shared_->operations.find(number);
      return place != shared_->operations.end() && place->second.is_complete[value(rank_)];
    };
    Result<void> state;
    const bool in_time = hub_.changed_.wait_until(lock, until(deadline), [&] {
      state = hub_.state_of(*shared_, rank_);
      return is_complete() || !state.ok();
    });
    if (is_complete()) {
      return {};
    }
    if (!in_time) {
      return Error{Errc::kDeadline, "the operation is still running"};
    }
    shared_->aborted.insert(rank_);  // no member may write to the buffer from now on
    return state;
  }

  MemoryHub& hub_;
  const std::shared_ptr<MemoryHub::Shared> shared_;
  const ViewId view_;
  const Rank rank_;
  const MemberId self_;
  std::uint64_t next_ = 0;
  std::byte barrier_{};
};

class MemoryTransport final : public Transport {
 public:
  MemoryTransport(MemoryHub& hub, std::string address) : hub_(hub), address_(std::move(address)) {}

  [[nodiscard]] std::string address() const override { return address_; }

  [[nodiscard]] Result<std::unique_ptr<Group>> form(const GroupSpec& spec,
                                                    Instant deadline) override {
    std::unique_lock lock(hub_.mutex_);
    std::shared_ptr<MemoryHub::Shared>& shared = hub_.views_[spec.view];
    if (shared == nullptr) {
      shared = std::make_shared<MemoryHub::Shared>();
      shared->peers = spec.peers;
    }
    shared->formed.insert(spec.rank);
    hub_.changed_.notify_all();
    Result<void> state;
    const std::shared_ptr<MemoryHub::Shared> own = shared;
    const bool in_time = hub_.changed_.wait_until(lock, until(deadline), [&] {
      state = given_up_ >= spec.view ? Error{Errc::kAborted, "forming was given up"}
                                     : hub_.state_of(*own, spec.rank);
      return own->formed.size() == own->peers.size() || !state.ok();
    });
    if (!state.ok()) {
      return state.error();
    }
    if (!in_time) {
      return Error{Errc::kDeadline, "some member did not come"};
    }
    return std::unique_ptr<Group>(std::make_unique<MemoryGroup>(hub_, own, spec));
  }

  void give_up_on(ViewId view) noexcept override {
    const std::lock_guard lock(hub_.mutex_);
    given_up_ = std::max(given_up_, view);
    hub_.changed_.notify_all();
  }

 private:
  MemoryHub& hub_;
  const std::string address_;
  ViewId given_up_{};  // guarded by the hub's mutex
};

std::unique_ptr<Transport> MemoryHub::make_transport(const std::string& address) {
  return std::make_unique<MemoryTransport>(*this, address);
}

}  // namespace mayfly::test_support
