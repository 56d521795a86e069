#pragma once

// Helpers for tests of live shards: parameters that are sums of gradients, and workers that compute
// slices with the product's flow and connections.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "base/net/wake_up.hpp"
#include "collectives/parameter_server/shard.hpp"
#include "collectives/parameter_server/shard_clients.hpp"

namespace mayfly::parameter_server {

inline constexpr std::size_t kLiveElements =
    100'003;  // 400,012 bytes: no multiple of a page, and several transfers of a socket
inline constexpr std::uint64_t kLivePayload = kLiveElements * sizeof(float);
inline constexpr std::uint64_t kLiveKey = 77;

inline bool is_uniform(std::span<const float> values) {
  return std::ranges::all_of(values, [&](float value) { return value == values.front(); });
}

/// Parameters that are the sum of all gradients. In these tests all elements of a gradient are
/// equal.
class SumState final : public ShardState {
 public:
  void apply(std::span<const SliceGradient> slices, const Update& /*update*/) override {
    for (const SliceGradient& slice : slices) {
      ASSERT_EQ(slice.sum.size(), kLiveElements);
      EXPECT_TRUE(is_uniform(slice.sum)) << "a gradient of two pushes";
      for (std::size_t i = 0; i < kLiveElements; ++i) {
        values_[i] += slice.sum[i];
      }
    }
  }
  [[nodiscard]] std::span<const float> values() const override { return values_; }
  [[nodiscard]] std::span<const float> momentum() const override { return momentum_; }

 private:
  std::vector<float> values_ = std::vector<float>(kLiveElements);
  std::vector<float> momentum_ = std::vector<float>(kLiveElements);
};

/// A worker of a job with one shard: the gradient of slice s is s + 1 in every element. One thread.
class LiveWorker {
 public:
  LiveWorker(std::uint64_t id, ShardClientsOptions options) {
    options.self = MemberId{id};
    options.wake = &wake_;
    options.elements = {kLiveElements};
    clients_ = ShardClients::make(options, flow_, [this](std::uint32_t, bool) -> PayloadTarget {
                 const auto bytes = std::as_writable_bytes(std::span(parameters_));
                 return {bytes.first(bytes.size() / 2 + 1), bytes.subspan(bytes.size() / 2 + 1)};
               }).value();
  }

  /// Begins a view in which the shard has this address.
  void set_view(ViewId view, const std::string& address) {
    ASSERT_TRUE(clients_->move_to(0, address).ok());
    set_view(view);
  }
  void set_view(ViewId view) { clients_->set_view(view, kLiveKey); }
  /// Works until the job is over.
  void run() {
    while (act(milliseconds(200))) {
    }
  }
  /// Does one action, or waits for at most this time. False when the job is over.
  bool act(Duration patience) {
    const FlowAction action = flow_.next();
    if (std::holds_alternative<flow::Wait>(action)) {
      clients_->wait(monotonic_now() + patience);
    } else if (const auto* pull = std::get_if<flow::Pull>(&action)) {
      clients_->pull(*pull);
    } else if (std::holds_alternative<flow::Adopt>(action)) {
      EXPECT_TRUE(is_uniform(parameters_)) << "parameters of two versions";
    } else if (const auto* push = std::get_if<flow::Compute>(&action)) {
      while (!clients_->all_sent()) {
        clients_->wait(monotonic_now() + patience);
      }
      std::ranges::fill(gradient_, static_cast<float>(push->slice + 1));
      clients_->push(*push, {.microbatches = 1, .samples = 1}, {gradient_});
    } else if (std::holds_alternative<flow::Snapshot>(action)) {
      flow_.recorded();
    } else if (std::holds_alternative<flow::Rest>(action)) {
      clients_->rest();
    }
    return !std::holds_alternative<flow::Over>(action);
  }
  /// The number of received leases.
  [[nodiscard]] std::uint64_t leases() const { return flow_.received(); }

 private:
  const WakeUp wake_;
  WorkerFlow flow_{1};
  std::vector<float> gradient_ = std::vector<float>(kLiveElements);
  std::vector<float> parameters_ = std::vector<float>(kLiveElements);
  std::unique_ptr<ShardClients> clients_;
};

struct JobShape {
  const char* phases = "bsp";
  std::uint64_t slices_per_step = 2;
  std::uint64_t steps = 6;
};

inline SyncPlan plan_of(const JobShape& shape) {
  JobLength length;
  length.last_step = shape.steps;
  length.slices_per_step = static_cast<std::uint32_t>(shape.slices_per_step);
  length.samples_per_step = shape.slices_per_step;
  return parse_phases(shape.phases, length).value();
}

/// The sum of the gradients of slices 0 to `slices` - 1.
inline float sum_of(std::uint64_t slices) {
  return static_cast<float>(slices * (slices + 1) / 2);
}

}  // namespace mayfly::parameter_server
