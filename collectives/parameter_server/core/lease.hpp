#pragma once

// A part of the work that the first shard grants to a worker. Values.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.hpp"
#include "collectives/parameter_server/core/sync_plan.hpp"

namespace mayfly::parameter_server {

enum class LeaseKind : std::uint8_t {
  kCompute = 1,  ///< compute and push the slices
  kSnapshot,     ///< record the state after all slices before `first`
  kOver,         ///< the job is over
  kProbe,        ///< compute the slices and push nothing: this measures the worker's speed
};

struct Lease {
  std::uint64_t serial = 0;  ///< number of this worker's lease, from 1
  LeaseKind kind = LeaseKind::kCompute;
  std::uint64_t first = 0;
  std::uint32_t count = 0;
  /// Compute with parameters of exactly this version of every shard; nothing: of the newest
  /// version. If some shard has a newer version, all shards have the slices already, and the lease
  /// is over.
  std::optional<std::uint64_t> version{};
  /// How many slices the worker has computed before, plus those that it missed because it joined
  /// late or had no work. SyncKind::kSsp compares these numbers.
  std::uint64_t clock = 0;
  /// Each slice is an update of its own, although the phase is kBsp.
  bool at_once = false;
  /// The change of the plan, if training has diverged.
  std::optional<Rewind> rewind{};
  friend bool operator==(const Lease&, const Lease&) = default;
};

/// The slice is to be computed and pushed under this lease.
[[nodiscard]] inline bool covers(const Lease& lease, std::uint64_t slice) {
  return lease.kind == LeaseKind::kCompute && slice >= lease.first &&
         slice < lease.first + lease.count;
}

struct Grant {
  MemberId worker{};
  Lease lease;
};
using Grants = std::vector<Grant>;

}  // namespace mayfly::parameter_server
