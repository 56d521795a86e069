#pragma once

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "elastic/net/member_client.hpp"

namespace mayfly::elastic {

/// Waits until a coordinator has taken every report that this thread has sent before. Errors as of
/// MemberClient::store_get; what was not taken in time is kept and sent later all the same.
Result<void> wait_for_reports(MemberClient& client, ViewId view, Instant deadline);

}  // namespace mayfly::elastic
