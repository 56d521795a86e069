#pragma once

// The nested types of FailoverWorld.

#include "base/bytes.hpp"
#include "elastic/core/view_log.hpp"
#include "tests/sim/failover_world.hpp"
#include "tests/sim/fault_plan.hpp"
#include "tests/sim/sim_clock.hpp"

namespace mayfly::sim {

struct FailoverWorld::Host {
  std::unique_ptr<elastic::Coordinator> core;  // while it is up
  std::uint64_t life = 0;                      // counts its starts
  SimClock clock;
  Bytes log;  // the primary's view log; survives crashes
  std::size_t durable_bytes = 0;
  std::optional<std::uint64_t> effects_to_live;  // after so many effects the host crashes
  std::map<MemberId, std::size_t> link_of;
  bool has_ended = false;
  bool ends_again = false;  // according to its log the job had ended before
  bool leads = false;       // it has members in a view
  Instant last_led;
  Instant suspended_until;
};

struct FailoverWorld::Link {
  std::size_t worker = 0;
  std::size_t host = 0;
  std::uint64_t life = 0;  // the host's life when the connection was made
  bool open_at_worker = true;
  bool open_at_host = true;
  Instant last_up;
  Instant last_down;
  MemberId member{};
  bool has_told_state = false;  // the coordinator has received the worker's Ready or Resume
};

/// The copy of the state that an observer receives, and the sums of the steps since.
struct FailoverWorld::Copy {
  ViewId since{};
  std::set<MemberId> donors;
  Instant arrives;
  std::uint64_t observed = 0;  ///< it has the sums of all steps up to this
  bool is_broken = false;      ///< a donor was lost before the copy had arrived
};

struct FailoverWorld::Worker {
  bool alive = true;
  std::optional<elastic::Member> member;
  std::uint64_t life = 0;           // counts its evictions
  bool is_new = true;               // no coordinator has admitted it since the last eviction
  std::optional<std::size_t> link;  // the present connection
  std::size_t address = 0;          // its position in the list of coordinators
  Instant lost_at;
  std::optional<Incarnation> obeys;  // of a broken member: the one of any coordinator that answers
  // The trainer.
  std::uint64_t committed = 0;
  bool has_state = true;     // false while it joins again and must receive the state
  std::optional<Copy> copy;  // of an observer; it has no work in its view
  bool is_observer = false;
  std::uint64_t observed = 0;   // the newest step of its view, as an observer knows it
  bool is_left_behind = false;  // other members have gone on from an earlier step than its own
  Instant last_progress;        // when it sent the last Progress
  elastic::MicrobatchSet held;
  std::optional<elastic::View> view;
  std::uint64_t generation = 0;
  bool boundary = false;
  bool contributed = false;            // to the view's first step
  bool has_finished = false;           // the work that follows the last step
  std::optional<Instant> needy_since;  // since when it lacks a coordinator that it needs
};

struct FailoverWorld::Group {
  elastic::View view;
  std::set<MemberId> entered;
  std::set<MemberId> left;
  std::map<std::uint64_t, std::map<MemberId, elastic::MicrobatchSet>> parts;
  std::set<std::uint64_t> boundaries;
  std::set<MemberId> at_the_end;  // members that have done their work after the last step
};

}  // namespace mayfly::sim
