#pragma once

// What `mayfly status` shows of the members. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "elastic/core/failure_detector.hpp"
#include "elastic/core/membership.hpp"
#include "elastic/core/stall_watch.hpp"

namespace mayfly::elastic {

enum class MemberPhase : std::uint8_t {
  kLoading,
  kReady,      ///< it waits for a view
  kObserving,  ///< it is in the view, and takes the state in the background
  kActive,
  kLeaving,
  kReturning  ///< it has outlived its connection, and has no place yet
};
/// Its name in records and messages: "loading".
[[nodiscard]] const char* name_of(MemberPhase phase);

/// What `mayfly status` shows of one member.
struct MemberStatus {
  MemberId id{};
  std::string host;
  std::uint32_t pid = 0;
  MemberPhase phase = MemberPhase::kLoading;
  Step committed{};
  float microbatch_ms = 0;         ///< measured, of all its threads together; 0 = unknown
  double silent_ms = 0;            ///< since it was last heard from
  std::string activity;            ///< what its trainer does; empty = not told
  std::uint32_t microbatches = 0;  ///< its share of a step in the present view
  std::string server;              ///< the provider's name for what it runs on; empty = unknown
  std::uint32_t cores = 0;         ///< that it may use; 0 = unknown
  Stages stages{};                 ///< of late
  ProcessUse use{};
  bool is_dismissed = false;  ///< it was told to go, and what it holds is no longer the job's
};

/// In the order of their ids. `is_running`: the present view is at work, so that its shares count.
[[nodiscard]] std::vector<MemberStatus> status_of(const Membership& membership,
                                                  const FailureDetector& detector,
                                                  const StallWatch& stalls, bool is_running,
                                                  Instant now);

}  // namespace mayfly::elastic
