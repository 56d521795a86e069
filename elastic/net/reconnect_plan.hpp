#pragma once

// Where and when a member looks for a coordinator after it lost its own. Pure.

#include <cstddef>
#include <cstdint>

#include "base/random.hpp"
#include "base/time.hpp"

namespace mayfly::elastic {

struct ReconnectOptions {
  std::size_t endpoints = 1;                   ///< length of the list
  Duration loyalty = milliseconds(500);        ///< so long only the one that was lost is tried
  Duration first_delay = milliseconds(50);     ///< between attempts, growing ...
  Duration longest_delay = milliseconds(500);  ///< ... to this
};

/// One search. The coordinator that was lost comes first: if it is only restarted, nothing has to
/// change hands. Then the whole list, round and round.
class ReconnectPlan {
 public:
  struct Attempt {
    std::size_t endpoint = 0;  ///< index into the list
    Duration delay{};          ///< to wait before it
  };

  /// `lost` is the index of the coordinator that was lost. `seed` spreads the members' attempts.
  ReconnectPlan(ReconnectOptions options, std::size_t lost, std::uint64_t seed, Instant now);

  /// The next attempt.
  [[nodiscard]] Attempt next(Instant now);
  /// The one that was tried last knows that it is not in charge: no more loyalty to it. The next
  /// one is further on in the list by `skip` places more (see NoQuorum), but not that one itself.
  void try_elsewhere(std::uint32_t skip);

 private:
  ReconnectOptions options_;
  std::size_t endpoint_;
  Instant loyal_until_;
  bool is_first_ = true;
  bool is_loyal_ = true;
  Duration delay_;
  std::size_t until_slower_ = 1;  // attempts until the delay grows
  RandomStream random_;
};

}  // namespace mayfly::elastic
