#pragma once

// A lease on its way from the first shard to a worker. Pure; any thread.

#include "base/result.hpp"
#include "collectives/parameter_server/core/lease_table.hpp"
#include "collectives/parameter_server/message.hpp"

namespace mayfly::parameter_server {

/// kLease, but for the worker's number.
[[nodiscard]] Header header_of(const Lease& lease);
/// kCorrupt if it is of a kind that we do not know.
[[nodiscard]] Result<Lease> lease_of(const Header& header);

}  // namespace mayfly::parameter_server
