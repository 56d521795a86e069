#pragma once

// What a worker says of itself before the machine of its member does. Private to elastic/net.

#include <string>

#include "base/ids.hpp"
#include "elastic/core/messages.hpp"
#include "elastic/net/member_client.hpp"

namespace mayfly::elastic {

/// What is true of every connection of this worker.
[[nodiscard]] Hello worker_hello(const MemberClientOptions& options);
/// Of its first one as a member: with whose id it comes, if it was evicted.
[[nodiscard]] Hello first_hello(const MemberClientOptions& options);
/// One file per member, so that those of one run directory do not write into each other's.
[[nodiscard]] std::string flight_path(const std::string& folder, MemberId self);

}  // namespace mayfly::elastic
