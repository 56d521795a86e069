#pragma once

// The work that the first shard grants to a worker. Values.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.hpp"
#include "collectives/parameter_server/core/sync_plan.hpp"

namespace mayfly::parameter_server {

enum class LeaseKind : std::uint8_t {
  kCompute = 1,  ///< compute and push the slices
  kSnapshot,     ///< all slices before `first` are in: record the state; nothing changes meanwhile
  kOver,         ///< the job is done
  kProbe,        ///< compute the slices and push nothing: how fast is this worker?
};

struct Lease {
  std::uint64_t serial = 0;  ///< of this worker's leases, from 1
  LeaseKind kind = LeaseKind::kCompute;
  std::uint64_t first = 0;
  std::uint32_t count = 0;
  /// Compute with parameters of exactly this version of every shard; nothing: of the newest. If
  /// some shard has a newer version, all shards have the slices already, and the lease is over.
  std::optional<std::uint64_t> version{};
  /// Slices that the worker has computed before, and those that it missed by coming late or having
  /// no work: what SyncKind::kSsp compares.
  std::uint64_t clock = 0;
  /// Each slice is an update of its own, although its phase is one of kBsp.
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
