#pragma once

// Helpers for tests of the coordinator's machines: views, and memberships in any phase.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "elastic/core/membership.hpp"
#include "tests/unit/elastic/members.hpp"

namespace mayfly::elastic {

inline constexpr Instant kSoon = Instant{} + seconds(1);
inline constexpr Instant kLater = Instant{} + seconds(2);

inline Hello hello_from(const std::string& address) {
  Hello hello;
  hello.address = address;
  hello.host = "host";
  return hello;
}

/// A view of these members, with one microbatch each.
inline View view_with(std::uint64_t id, std::uint64_t committed, const std::vector<MemberId>& ids) {
  View view;
  view.id = ViewId{id};
  view.committed = Step{committed};
  for (const MemberId member : ids) {
    const auto rank = static_cast<std::uint32_t>(view.members.size());
    view.members.push_back({member, "", MicrobatchSet::range(rank, 1), rank, 1});
  }
  return view;
}

/// Adds a member that has loaded everything.
inline void add_ready(Membership& membership, MemberId id, std::uint64_t committed = 0,
                      const std::string& address = "") {
  membership.connect(id, hello_from(address), kSoon);
  membership.become_ready(id, Ready{Step{committed}, 1000}, kSoon);
}

/// A membership whose members work in view 1, which begins after step 10.
inline Membership working(const std::vector<MemberId>& ids, CoordinatorOptions options = {}) {
  Membership membership(options);
  for (const MemberId id : ids) {
    add_ready(membership, id, 10);
  }
  Outbox outbox;
  (void)membership.enter(view_with(1, 10, ids), kSoon, outbox);
  return membership;
}

inline Stopped stopped_after(std::uint64_t committed, std::uint64_t view = 1) {
  Stopped stopped;
  stopped.view = ViewId{view};
  stopped.committed = Step{committed};
  return stopped;
}

}  // namespace mayfly::elastic
