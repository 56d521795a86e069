#include "elastic/net/report_barrier.hpp"

#include <string>

namespace mayfly::elastic {

Result<void> wait_for_reports(MemberClient& client, ViewId view, Instant deadline) {
  // A connection keeps its order: the answer to a later question says that all before it came.
  const std::string key = "reports of " + std::to_string(value(client.id()));
  if (Result<void> set = client.store_set(view, key, {}); !set.ok()) {
    return set;
  }
  if (Result<Bytes> heard = client.store_get(view, key, deadline); !heard.ok()) {
    return std::move(heard).error();
  }
  return {};
}

}  // namespace mayfly::elastic
