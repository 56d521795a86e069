#pragma once

// The data about members that `mayfly status` shows. Pure; any thread.

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
  kLoading,    ///< also a worker that joins again under its id, until its report has arrived
  kReady,      ///< it waits for a view
  kObserving,  ///< it is in the view, and receives the state in the background
  kActive,
  kLeaving,
  kReturning  ///< it has lost its former connection, and has no place in the view yet
};
/// Its name in records and messages: "loading".
[[nodiscard]] const char* name_of(MemberPhase phase);

/// The data about one member that `mayfly status` shows.
struct MemberStatus {
  MemberId id{};
  std::string host;
  std::uint32_t pid = 0;
  MemberPhase phase = MemberPhase::kLoading;
  Step committed{};
  float microbatch_ms = 0;         ///< as in Progress; 0 = unknown
  double silent_ms = 0;            ///< time since its last message or heartbeat
  std::string activity;            ///< of its trainer, readable; empty = unknown
  std::uint32_t microbatches = 0;  ///< its share of a step in the present view
  std::string server;              ///< the provider's name for its server; empty = unknown
  std::uint32_t cores = 0;         ///< number of cores that it may use; 0 = unknown
  Stages stages{};                 ///< its last report
  ProcessUse use{};
  bool is_dismissed = false;  ///< it was told to leave; its sums and its state no longer count
  std::string address;        ///< for other members, as in its Hello
};

/// All members, in the order of their ids. `is_running`: the present view computes, so its shares
/// count.
[[nodiscard]] std::vector<MemberStatus> status_of(const Membership& membership,
                                                  const FailureDetector& detector,
                                                  const StallWatch& stalls, bool is_running,
                                                  Instant now);

}  // namespace mayfly::elastic
