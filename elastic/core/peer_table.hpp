#pragma once

// The table of the workers that a coordinator knows, and how many of them are in each phase and
// want to leave: kept as they change, because counting 10,000 members with each message would take
// seconds. Pure. One thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "elastic/core/coordinator_events.hpp"
#include "elastic/core/member_map.hpp"
#include "elastic/core/messages.hpp"
#include "elastic/core/speed_meter.hpp"

namespace mayfly::elastic {

/// Everything that the coordinator knows about one worker. Only Membership changes it, and the
/// fields that are counted only through PeerTable. Phases: loading -> ready -> active <-> stopped,
/// and dismissed from any of them. Ready and stopped peers are the candidates for the next view.
/// Returning: the worker had lost its connection to this or another coordinator and is connected
/// again; `resume` is its report, once that has arrived.
struct Peer {
  enum class Phase { kLoading, kReady, kActive, kStopped, kDismissed, kReturning };
  static constexpr std::size_t kPhases = 6;
  std::optional<Resume> resume;  ///< kReturning
  bool joins_again = false;      ///< kReturning: Hello::joins_again; a new worker with an old id
  std::string host;
  std::uint32_t pid = 0;
  std::string address;
  std::string server;
  std::uint32_t cores = 0;
  bool is_worker = true;  ///< it computes, and counts for min_workers
  Step committed{};       ///< its highest committed step, from Ready, Progress or Stopped
  Step loaded{};          ///< the step of the state with which it connected
  SpeedMeter speed;
  Stages stages{};            ///< its last report
  ProcessUse use{};           ///< its last report
  bool copied_state = false;  ///< from another member, and not compared with all members since then
  Stopped stopped;            ///< its report of the present view, in kStopped
  bool formed = false;        ///< it has reported Formed in the present view
  bool synced = false;        ///< it has reported Synced in the present view
  std::uint64_t state_bytes = 0;
  ViewId observes{};                 ///< ViewMember::observes in the last view that it was in
  std::vector<MemberId> donors;      ///< the members that send it that state
  std::optional<Instant> caught_up;  ///< when it reported CaughtUp in the present view
  std::optional<Join> join;          ///< until its first work is committed
  /// It was not offered the newest checkpoint, or a newer one may have been written since then.
  /// There are four cases: other members held a state of the job when it connected; they have
  /// trained in a view that it was not in, or for whose state it had to wait; it had an id before
  /// its connection broke and has received no state since; or it joined again under its id when no
  /// coordinator was in charge.
  bool may_lack_newest_state = false;
  /// When it connected again, it did not have the state of its view, and it has not reported a
  /// state since. So it may have the state that it loaded at its start, whose step is not known any
  /// more.
  bool returned_behind = false;

  [[nodiscard]] Phase phase() const { return phase_; }
  /// It has asked to leave, or was asked to, for leave_reason().
  [[nodiscard]] bool is_leaving() const { return is_leaving_; }
  [[nodiscard]] const std::string& leave_reason() const { return leave_reason_; }

  /// It observes, and has not reported yet that it holds a state of the job.
  [[nodiscard]] bool lacks_state() const { return observes != ViewId{} && !caught_up.has_value(); }

  /// In the present view: its group is formed, and it has the state or receives it as an observer.
  [[nodiscard]] bool has_started() const { return formed && (synced || observes != ViewId{}); }

  [[nodiscard]] bool is_candidate() const {
    return phase_ == Phase::kReady || phase_ == Phase::kStopped;
  }

  /// It is a worker that computes or could compute: it is in a view or a candidate, and has a
  /// state.
  [[nodiscard]] bool works() const {
    return is_worker && (phase_ == Phase::kActive || is_candidate()) && !lacks_state();
  }

  /// It has left the view that ends, in which it had or should have received the state, so its
  /// report can be compared with those of the others.
  [[nodiscard]] bool is_claimant() const {
    return phase_ == Phase::kStopped && observes == ViewId{};
  }

 private:
  friend class PeerTable;

  Phase phase_ = Phase::kLoading;
  bool is_leaving_ = false;
  std::string leave_reason_;
};

/// All known workers, by id.
using Peers = MemberMap<Peer>;

/// True if a member other than `leaver` computes, or could (Peer::works()), and does not want to
/// leave.
[[nodiscard]] bool leaves_somebody(const Peers& peers, MemberId leaver);
/// The same, but a member that wants to leave counts: it stays until there is another one, and
/// cannot wait for one that is silent.
[[nodiscard]] bool another_member_works(const Peers& peers, MemberId member);

class PeerTable {
 public:
  [[nodiscard]] const Peers& all() const { return peers_; }
  /// To change peers in the order of their ids.
  [[nodiscard]] Peers::iterator begin() { return peers_.begin(); }
  [[nodiscard]] Peers::iterator end() { return peers_.end(); }
  /// nullptr if no peer has this id; valid until the peer is removed.
  [[nodiscard]] Peer* find(MemberId id);
  [[nodiscard]] const Peer* find(MemberId id) const;
  /// The peer with this id, which must exist.
  [[nodiscard]] Peer& at(MemberId id);
  [[nodiscard]] const Peer& at(MemberId id) const;

  [[nodiscard]] std::size_t count(Peer::Phase phase) const {
    return counts_[static_cast<std::size_t>(phase)];
  }
  /// Peers that want to leave and are not dismissed yet.
  [[nodiscard]] std::size_t leavers() const { return leavers_; }
  /// Whether any peer is active. Begins its search at the peer that was found last, because members
  /// of a view that ends stop being active in any order.
  [[nodiscard]] bool is_anyone_active();

  /// A new peer in this phase, under an id that no other has.
  Peer& add(MemberId id, Peer::Phase phase);
  void enter_phase(Peer& peer, Peer::Phase phase);
  /// The peer has asked to leave, or was asked to; the last reason counts.
  void wants_to_leave(Peer& peer, const std::string& reason);
  /// The peer must exist.
  void remove(MemberId id);

  /// Invariants between any two calls, in constant time.
  void check_invariants() const;
  /// The same for every peer.
  void check_peers() const;

 private:
  Peers peers_;
  std::array<std::size_t, Peer::kPhases> counts_{};  // by phase
  std::size_t leavers_ = 0;
  MemberId active_hint_{};  // see is_anyone_active()
};

}  // namespace mayfly::elastic
