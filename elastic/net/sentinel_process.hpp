#pragma once

// The memory that a worker and its sentinel share, and the sentinel's own main function. Private to
// elastic/net.

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/ids.hpp"
#include "elastic/net/progress_board.hpp"
#include "elastic/net/sentinel.hpp"

namespace mayfly::elastic {

/// Shared memory. The worker writes the plain fields before it sets `armed`, and never again.
struct SentinelShared {
  std::size_t bytes = sizeof(SentinelShared);  ///< detects a sentinel of another version
  pthread_mutex_t alive;                       ///< robust; held by the worker as long as it lives
  std::atomic<bool> armed{false};
  std::atomic<bool> ended_well{false};  ///< the worker's end is not a death
  std::atomic<bool> gave_up{false};     ///< it takes part no longer, and has not ended
  ProgressBoard board;
  std::atomic<std::uint64_t> job{0};          ///< the job in which it has this id:
  std::atomic<std::uint64_t> self{0};         ///< MemberId; stored after the job
  std::atomic<std::uint64_t> incarnation{0};  ///< the highest that the member has accepted
  std::atomic<std::uint64_t> author{0};       ///< its coordinator process; stored before it
  std::atomic<std::uint32_t> connected{0};    ///< the endpoint that the worker is connected to
  std::atomic<std::uint32_t> connections{0};  ///< counts the worker's connections
  std::size_t token_bytes = 0;
  std::byte token[256] = {};
  std::size_t endpoint_count = 0;
  char endpoints[kEndpointsMax][256] = {};
};

/// Watches until the worker ends, then exits.
[[noreturn]] void run_sentinel(SentinelShared& shared);

}  // namespace mayfly::elastic
