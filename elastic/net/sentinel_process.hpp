#pragma once

// What the worker and its sentinel share, and the sentinel's own main function. Private to
// elastic/net.

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/ids.hpp"
#include "elastic/net/progress_board.hpp"

namespace mayfly::elastic {

/// One page of anonymous shared memory. The worker writes the plain fields before it sets `armed`.
struct SentinelShared {
  pthread_mutex_t alive;  ///< robust; held by the worker as long as it lives
  std::atomic<bool> armed{false};
  std::atomic<bool> ended_well{false};  ///< the worker's end is not a death
  ProgressBoard board;
  MemberId self{};
  std::size_t token_bytes = 0;
  std::byte token[256] = {};
  char endpoint[512] = {};
};

/// Watches until the worker ends, then exits.
[[noreturn]] void run_sentinel(SentinelShared& shared);

}  // namespace mayfly::elastic
