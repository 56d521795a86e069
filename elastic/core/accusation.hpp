#pragma once

#include <string>

#include "base/ids.hpp"
#include "elastic/core/messages.hpp"

namespace mayfly::elastic {

/// A judge's word about a member that is to be evicted.
struct Accusation {
  MemberId member{};
  std::string reason;                            ///< for people, and for the member
  DismissReason told = DismissReason::kEvicted;  ///< any for which is_eviction() holds
};

}  // namespace mayfly::elastic
