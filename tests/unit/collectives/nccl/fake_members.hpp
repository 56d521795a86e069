#pragma once

// Members of an NCCL group on fake devices, each with a transport of its own, in one process.

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "collectives/nccl/nccl_transport.hpp"
#include "tests/unit/collectives/nccl/fake_nccl.hpp"
#include "tests/unit/collectives/one_process.hpp"

namespace mayfly::collectives::test {

/// Waits until the condition holds, which another thread makes true; yields meanwhile.
inline void until(const std::function<bool()>& true_at_last) {
  const Instant hang = far();
  while (!true_at_last() && monotonic_now() < hang) {
    std::this_thread::yield();
  }
}

struct FakeMembers {
  explicit FakeMembers(std::uint32_t size) {
    for (std::uint32_t i = 0; i < size; ++i) {
      auto fake = make_fake_nccl();
      fakes.push_back(fake.get());
      transports.push_back(make_nccl_transport(std::move(fake), "nccl:test").value());
    }
  }

  /// Member `rank` of a view of the first `size` members, whose ids are 100 and up.
  [[nodiscard]] GroupSpec spec(std::uint64_t view, std::uint32_t rank, std::uint32_t size) {
    GroupSpec made;
    made.view = ViewId{view};
    made.rank = Rank{rank};
    made.key = view + 1000;
    made.store = &store;
    for (std::uint32_t i = 0; i < size; ++i) {
      made.peers.push_back({MemberId{100 + i}, "nccl:test"});
    }
    return made;
  }

  [[nodiscard]] std::vector<std::unique_ptr<DeviceGroup>> form(std::uint64_t view,
                                                               std::uint32_t size) {
    std::vector<std::unique_ptr<DeviceGroup>> groups(size);
    on_all(size, [&](std::uint32_t rank) {
      auto formed = transports[rank]->form(spec(view, rank, size), far());
      groups[rank].reset(dynamic_cast<DeviceGroup*>(formed.value().release()));
    });
    return groups;
  }

  MemoryStore store;
  std::vector<FakeNccl*> fakes;  // owned by the transports
  std::vector<std::unique_ptr<Transport>> transports;
};

}  // namespace mayfly::collectives::test
