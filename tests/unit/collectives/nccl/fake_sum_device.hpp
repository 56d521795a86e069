#pragma once

// A device whose streams run at arbitrary times: whenever the host waits for one, the fake carries
// out operations of all streams in an order drawn from a seed, as far as streams and events allow.
// If the host has forgotten to order two operations, the result is wrong for some seed.

#include <cstddef>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "base/check.hpp"
#include "base/random.hpp"
#include "tests/unit/collectives/nccl/host_sum_calls.hpp"

namespace mayfly::collectives::test {

/// One thread. All allocations must be released before this object is destroyed.
class FakeSumDevice final : public HostSumCalls {
 public:
  explicit FakeSumDevice(std::uint64_t seed) : random_(CounterRandom(seed)) {}
  ~FakeSumDevice() override { ENSURE(memory_ == 0, "what was allocated is released"); }

  /// Adds an operation of the test to a stream.
  void give(DeviceStream stream, std::function<void()> work) {
    queue_of(stream).push_back({std::move(work), nullptr});
  }
  /// Fails from the given allocation on; 0 is the first.
  void fail_allocation(int number) { allocations_left_ = number; }
  /// Sets the size of the device's memory.
  void limit_memory(std::size_t bytes) { bytes_left_ = bytes; }
  /// The bytes allocated so far in the device's memory, not in the host's.
  [[nodiscard]] std::size_t device_bytes() const { return device_bytes_; }

  Result<void*> allocate(std::size_t bytes) override {
    if (bytes > bytes_left_) {
      return Error{Errc::kUnsupported, "no memory"};
    }
    Result<void*> memory = allocate_pinned(bytes);
    if (memory.ok()) {
      bytes_left_ -= bytes;
      device_bytes_ += bytes;
    }
    return memory;
  }
  Result<void*> allocate_pinned(std::size_t bytes) override {
    if (allocations_left_ == 0) {
      return Error{Errc::kUnsupported, "no memory"};
    }
    --allocations_left_;
    ++memory_;
    return HostSumCalls::allocate(bytes);
  }
  void release(void* memory) noexcept override {
    memory_ -= memory != nullptr ? 1 : 0;
    HostSumCalls::release(memory);
  }
  void release_pinned(void* memory) noexcept override { release(memory); }

  Result<DeviceStream> make_stream() override {
    streams_.push_back(std::make_unique<Queue>());
    return DeviceStream(streams_.back().get());
  }
  void destroy_stream(DeviceStream stream) noexcept override {
    std::erase_if(streams_, [stream](const auto& queue) { return queue.get() == stream; });
  }
  Result<DeviceEvent> make_event() override { return DeviceEvent(new Event()); }
  void destroy_event(DeviceEvent event) noexcept override { delete static_cast<Event*>(event); }

  Result<void> upload(void* to, const void* from, std::size_t bytes, DeviceStream stream) override {
    const auto* const first = static_cast<const std::byte*>(from);
    give(stream, [to, taken = std::vector<std::byte>(first, first + bytes)] {
      std::memcpy(to, taken.data(), taken.size());
    });
    return {};
  }
  Result<void> download(void* to, const void* from, std::size_t bytes,
                        DeviceStream stream) override {
    return copy(to, from, bytes, stream);
  }
  Result<void> copy(void* to, const void* from, std::size_t bytes, DeviceStream stream) override {
    give(stream, [=] { std::memcpy(to, from, bytes); });
    return {};
  }
  Result<void> clear(void* memory, std::size_t bytes, DeviceStream stream) override {
    give(stream, [=] { std::memset(memory, 0, bytes); });
    return {};
  }
  Result<void> add(const SumTask& task, DeviceStream stream) override {
    give(stream, [task] { add_on_host(task); });
    return {};
  }
  Result<void> mean(const MeanTask& task, DeviceStream stream) override {
    give(stream, [task] { mean_on_host(task); });
    return {};
  }
  Result<void> record(DeviceEvent event, DeviceStream stream) override {
    auto happened = std::make_shared<bool>(false);
    static_cast<Event*>(event)->last = happened;
    give(stream, [happened] { *happened = true; });
    return {};
  }
  Result<void> hold(DeviceStream stream, DeviceEvent event) override {
    queue_of(stream).push_back({[] {}, static_cast<Event*>(event)->last});
    return {};
  }
  Result<void> wait_for(DeviceStream stream) override {
    while (!queue_of(stream).empty()) {
      run_one();
    }
    return {};
  }

 private:
  struct Event {
    std::shared_ptr<bool> last;  // null: never recorded, so no stream waits for it
  };
  struct Item {
    std::function<void()> work;
    std::shared_ptr<bool> after;  // null: nothing
    [[nodiscard]] bool may_run() const { return after == nullptr || *after; }
  };

  using Queue = std::deque<Item>;

  static Queue& queue_of(DeviceStream stream) { return *static_cast<Queue*>(stream); }

  void run_one() {
    std::vector<Queue*> ready;
    for (const std::unique_ptr<Queue>& queue : streams_) {
      if (!queue->empty() && queue->front().may_run()) {
        ready.push_back(queue.get());
      }
    }
    ENSURE(!ready.empty(), "streams do not wait for each other in a circle");
    Queue& chosen = *ready[random_.below(ready.size())];
    const Item item = std::move(chosen.front());
    chosen.pop_front();
    item.work();
  }

  RandomStream random_;
  std::vector<std::unique_ptr<Queue>> streams_;
  int allocations_left_ = 1000;
  std::size_t bytes_left_ = std::numeric_limits<std::size_t>::max();
  std::size_t device_bytes_ = 0;
  int memory_ = 0;
};

}  // namespace mayfly::collectives::test
