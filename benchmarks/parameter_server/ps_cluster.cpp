#include "benchmarks/parameter_server/ps_cluster.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <thread>

#include "base/aligned_buffer.hpp"
#include "base/net/wake_up.hpp"
#include "base/try_assign.hpp"
#include "collectives/parameter_server/shard.hpp"
#include "collectives/parameter_server/shard_clients.hpp"
#include "collectives/parameter_server/slice_gradient.hpp"
#include "nn/optimizer.hpp"

namespace mayfly::bench {
namespace {

using parameter_server::FlowAction;
using parameter_server::PayloadTarget;
using parameter_server::Shard;
using parameter_server::ShardClients;
using parameter_server::SyncPlan;
using parameter_server::WorkerFlow;
namespace flow = parameter_server::flow;

constexpr Duration kTurn = milliseconds(200);
constexpr ViewId kView{1};
constexpr std::uint64_t kKey = 0x6d61796666;

struct Range {
  std::size_t first = 0;
  std::size_t last = 0;
  [[nodiscard]] std::size_t size() const { return last - first; }
};

Range range_of(const PsClusterOptions& options, std::uint32_t shard) {
  return {options.elements * shard / options.shards,
          options.elements * (shard + 1) / options.shards};
}

/// Like engine/parameter_server/sgd_shard, without a network's layout.
class PlainShard final : public parameter_server::ShardState {
 public:
  explicit PlainShard(std::size_t elements) : values_(elements), momentum_(elements) {}

  void apply(std::span<const parameter_server::SliceGradient> slices,
             const parameter_server::Update& /*update*/) override {
    alignas(64) std::array<float, parameter_server::kMeanBlock> block;
    for (std::size_t first = 0; first < values_.size(); first += block.size()) {
      const std::size_t size = std::min(block.size(), values_.size() - first);
      const std::span<float> mean(block.data(), size);
      parameter_server::mean_of(slices, first, mean);
      nn::sgd_update({}, 0.001F, mean, values_.span().subspan(first, size),
                     momentum_.span().subspan(first, size));
    }
  }
  std::span<const float> values() const override { return values_.span(); }
  std::span<const float> momentum() const override { return momentum_.span(); }

 private:
  AlignedBuffer<float> values_;
  AlignedBuffer<float> momentum_;
};

/// Records every update; used by the shard's thread until the shard has ended.
class UpdateClock final : public parameter_server::ShardListener {
 public:
  void on_update(const parameter_server::UpdateFacts& facts) override {
    updates.push_back({monotonic_now(), process_cpu_seconds(),
                       facts.update.committed_before + facts.update.slices.size()});
  }
  std::vector<TimedUpdate> updates;
};

/// A worker whose gradients need no computing.
class EagerWorker {
 public:
  EagerWorker(const PsClusterOptions& options, std::uint32_t number,
              const std::vector<std::string>& addresses)
      : options_(options),
        number_(number),
        addresses_(addresses),
        flow_(options.shards),
        gradient_(options.elements),
        parameters_(options.elements) {
    std::fill(gradient_.data(), gradient_.data() + gradient_.size(), 1e-3F);
  }

  Result<void> run() {
    parameter_server::ShardClientsOptions options;
    options.self = MemberId{number_ + 1};
    options.addresses = addresses_;
    options.wake = &wake_;
    options.share_memory = options_.share_memory;
    std::vector<std::span<const float>> gradients;
    for (std::uint32_t shard = 0; shard < options_.shards; ++shard) {
      const Range range = range_of(options_, shard);
      options.elements.push_back(range.size());
      gradients.push_back(gradient_.span().subspan(range.first, range.size()));
    }
    Result<std::unique_ptr<ShardClients>> made =
        ShardClients::make(options, flow_, [this](std::uint32_t shard, bool) -> PayloadTarget {
          const Range range = range_of(options_, shard);
          return {std::as_writable_bytes(parameters_.span().subspan(range.first, range.size())),
                  {}};
        });
    if (!made.ok()) {
      return std::move(made).error();
    }
    made.value()->set_view(kView, kKey);
    while (!act(*made.value(), gradients)) {
    }
    return {};
  }

 private:
  /// True when the job is over.
  bool act(ShardClients& clients, const std::vector<std::span<const float>>& gradients) {
    const FlowAction action = flow_.next();
    if (std::holds_alternative<flow::Wait>(action)) {
      clients.wait(monotonic_now() + kTurn);
    } else if (const auto* pull = std::get_if<flow::Pull>(&action)) {
      clients.pull(*pull);
    } else if (const auto* push = std::get_if<flow::Compute>(&action)) {
      while (!clients.all_sent()) {
        clients.wait(monotonic_now() + kTurn);
      }
      clients.push(*push, {.microbatches = 1, .samples = 1}, gradients);
    } else if (std::holds_alternative<flow::Snapshot>(action)) {
      flow_.recorded();
    } else if (std::holds_alternative<flow::Rest>(action)) {
      clients.rest();
    }
    return std::holds_alternative<flow::Over>(action);
  }

  const PsClusterOptions& options_;
  const std::uint32_t number_;
  const std::vector<std::string>& addresses_;
  const WakeUp wake_;
  WorkerFlow flow_;
  AlignedBuffer<float> gradient_;
  AlignedBuffer<float> parameters_;
};

/// The share of the shards' bytes that were exchanged in shared memory. Ends the shards, whose job
/// is over.
double shared_of(const std::vector<std::unique_ptr<Shard>>& shards) {
  double shared = 0;
  double all = 0;
  for (const auto& shard : shards) {
    shard->stop();
    const parameter_server::ShardFacts facts = shard->facts();
    shared += static_cast<double>(facts.bytes_shared);
    all += static_cast<double>(facts.bytes_in + facts.bytes_out);
  }
  return all > 0 ? shared / all : 0;
}

Result<SyncPlan> plan_of(const PsClusterOptions& options) {
  parameter_server::JobLength length;
  length.last_step = options.steps;
  length.slices_per_step = options.workers;
  length.samples_per_step = options.workers;
  return parameter_server::parse_phases(options.phases, length);
}

}  // namespace

double process_cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds_of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

Result<PsClusterRun> run_ps_cluster(const PsClusterOptions& options) {
  TRY_ASSIGN(const SyncPlan plan, plan_of(options));
  std::vector<std::unique_ptr<PlainShard>> states;
  std::vector<std::unique_ptr<UpdateClock>> clocks;
  std::vector<std::unique_ptr<Shard>> shards;  // their threads use the rest
  std::vector<std::string> addresses;
  std::set<MemberId> members;
  for (std::uint32_t i = 0; i < options.workers; ++i) {
    members.insert(MemberId{i + 1});
  }
  for (std::uint32_t i = 0; i < options.shards; ++i) {
    states.push_back(std::make_unique<PlainShard>(range_of(options, i).size()));
    clocks.push_back(std::make_unique<UpdateClock>());
    parameter_server::ShardOptions shard;
    shard.number = i;
    shard.shards = options.shards;
    TRY_ASSIGN(std::unique_ptr<Shard> started,
               Shard::start(shard, plan, *states.back(), *clocks.back()));
    started->set_view({kView, kKey, members});
    addresses.push_back(started->address());
    shards.push_back(std::move(started));
  }
  std::vector<Result<void>> outcomes(options.workers);
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < options.workers; ++i) {
    threads.emplace_back([&, i] { outcomes[i] = EagerWorker(options, i, addresses).run(); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  PsClusterRun run;
  run.shared = shared_of(shards);
  shards.clear();
  for (const Result<void>& outcome : outcomes) {
    if (!outcome.ok()) {
      return outcome.error();
    }
  }
  run.updates = std::move(clocks.front()->updates);
  return run;
}

}  // namespace mayfly::bench
