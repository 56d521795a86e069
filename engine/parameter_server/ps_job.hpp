#pragma once

// The plan of a job with parameter servers, derived from its configuration: phases, shards and
// slices. Equal on all processes of the job. Pure; any thread.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collectives/parameter_server/core/divergence_watch.hpp"
#include "collectives/parameter_server/core/update_order.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/job/job.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "nn/optimizer.hpp"

namespace mayfly::engine {

/// Elements [first, last) of the vector [loss | statistics | parameters] (ReductionLayout).
struct ShardRange {
  std::size_t first = 0;
  std::size_t last = 0;
};
/// Divides statistics and parameters into one range per shard, of equal sizes, at multiples of 16
/// elements.
[[nodiscard]] std::vector<ShardRange> shard_ranges(const ReductionLayout& layout,
                                                   std::uint32_t shards);

struct MicrobatchSlice {
  std::uint64_t step = 0;  ///< from 1
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

struct PsJob {
  parameter_server::SyncPlan plan;
  std::set<std::uint64_t> checkpoints;  ///< steps after which one is written, except the last step
  parameter_server::RateRule rule = parameter_server::RateRule::kLinear;
  parameter_server::DivergenceOptions divergence{};
  std::uint32_t shards = 1;  ///< of all servers
  std::vector<ShardRange> ranges;

  /// The microbatches of a slice.
  [[nodiscard]] MicrobatchSlice microbatches_of(const Job& job, std::uint64_t slice) const;
  /// The learning rate of an update with the gradients of so many microbatches.
  [[nodiscard]] double rate_of(const Job& job, const parameter_server::Update& update,
                               std::uint64_t microbatches) const;
};
[[nodiscard]] nn::SgdOptions sgd_of(const Job& job, const parameter_server::PhaseSettings& phase);
/// `first_step` is the step that the job's initial state has committed.
[[nodiscard]] Result<PsJob> make_ps_job(const Job& job, const ReductionLayout& layout,
                                        std::uint64_t first_step);

}  // namespace mayfly::engine
