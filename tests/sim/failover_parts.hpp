#pragma once

// The inside of FailoverWorld.

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
  Bytes log;  // of the primary; survives crashes
  std::size_t durable_bytes = 0;
  std::optional<std::uint64_t> effects_to_live;  // then it crashes
  std::map<MemberId, std::size_t> link_of;
  bool has_ended = false;
  bool ends_again = false;  // what it found in its log was over
  bool leads = false;       // members, in a view
  Instant last_led;
};

struct FailoverWorld::Link {
  std::size_t worker = 0;
  std::size_t host = 0;
  std::uint64_t life = 0;  // of the host
  bool open_at_worker = true;
  bool open_at_host = true;
  Instant last_up;
  Instant last_down;
  MemberId member{};
  bool has_told_state = false;  // the coordinator has heard what its worker holds
};

struct FailoverWorld::Worker {
  bool alive = true;
  std::optional<elastic::Member> member;
  std::uint64_t life = 0;           // counts its evictions
  bool is_new = true;               // no coordinator has taken it in since the last one
  std::optional<std::size_t> link;  // the present connection
  std::size_t address = 0;          // of the list: which host
  Instant lost_at;
  std::optional<Incarnation> obeys;  // a broken one: whomever it talks to
  // The trainer.
  std::uint64_t committed = 0;
  bool has_state = true;        // that it could go on with; not while it joins again
  bool is_left_behind = false;  // the job has gone on elsewhere from an earlier step than its own
  Instant last_progress;        // said
  elastic::MicrobatchSet held;
  std::optional<elastic::View> view;
  std::uint64_t generation = 0;
  bool boundary = false;
  bool contributed = false;            // to the view's first step
  bool has_finished = false;           // what follows the last step
  std::optional<Instant> needy_since;  // it needs a coordinator and has none
};

struct FailoverWorld::Group {
  elastic::View view;
  std::set<MemberId> entered;
  std::set<MemberId> left;
  std::map<std::uint64_t, std::map<MemberId, elastic::MicrobatchSet>> parts;
  std::set<std::uint64_t> boundaries;
  std::set<MemberId> at_the_end;  // have done their part of what follows the last step
};

}  // namespace mayfly::sim
