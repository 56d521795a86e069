#pragma once

// What the coordinator knows of one worker. Membership alone changes it; all others read.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "elastic/core/coordinator_events.hpp"
#include "elastic/core/messages.hpp"
#include "elastic/core/speed_meter.hpp"

namespace mayfly::elastic {

/// Loading -> ready -> active <-> stopped, or dismissed from anywhere. Ready and stopped peers are
/// the candidates for the next view. Returning: it has outlived its connection to us or to another
/// coordinator; what it does is in `resume`, once it has said so.
struct Peer {
  enum class Phase { kLoading, kReady, kActive, kStopped, kDismissed, kReturning };
  Phase phase = Phase::kLoading;
  std::optional<Resume> resume;  ///< kReturning
  std::string host;
  std::uint32_t pid = 0;
  std::string address;
  std::string server;
  bool leaving = false;
  std::string leave_reason;
  Step committed{};  ///< its own; from Ready, Progress or Stopped
  SpeedMeter speed;
  bool copied_state = false;  ///< from another member, and not compared with all since then
  Stopped stopped;            ///< of the present view, in kStopped
  bool formed = false;        ///< in the present view
  bool synced = false;        ///< in the present view
  std::uint64_t state_bytes = 0;
  ViewId observes{};                 ///< as in the last view it was in
  std::vector<MemberId> donors;      ///< of that state
  std::optional<Instant> caught_up;  ///< in the present view
  std::optional<Join> join;          ///< until its first work is committed

  /// It observes, and has not said yet that it holds a state of the job.
  [[nodiscard]] bool lacks_state() const { return observes != ViewId{} && !caught_up.has_value(); }

  /// In the present view: its group stands, and it has the state or takes it meanwhile.
  [[nodiscard]] bool has_started() const { return formed && (synced || observes != ViewId{}); }

  [[nodiscard]] bool is_candidate() const {
    return phase == Phase::kReady || phase == Phase::kStopped;
  }

  /// It has left the view that ends, in which it had the state or should have got it: what it says
  /// can be held against what the others say.
  [[nodiscard]] bool is_claimant() const {
    return phase == Phase::kStopped && observes == ViewId{};
  }
};

/// By id.
using Peers = std::map<MemberId, Peer>;
/// Peers that may be in the next view, in the order of their ids. Valid as long as nobody goes.
using Candidates = std::vector<std::pair<MemberId, const Peer*>>;

}  // namespace mayfly::elastic
