#pragma once

// The environment of the machines: time, the network, the I/O of the coordinator, a launcher that
// starts new workers, and the faults of the fault plan. A run uses one thread and is a function of
// its scenario.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "elastic/core/coordinator.hpp"
#include "tests/sim/checkers/commit_checker.hpp"
#include "tests/sim/checkers/corruption_checker.hpp"
#include "tests/sim/checkers/eviction_checker.hpp"
#include "tests/sim/checkers/lease_checker.hpp"
#include "tests/sim/checkers/liveness_checker.hpp"
#include "tests/sim/checkers/pace_checker.hpp"
#include "tests/sim/checkers/rebalance_checker.hpp"
#include "tests/sim/checkers/sample_checker.hpp"
#include "tests/sim/checkers/suspicion_checker.hpp"
#include "tests/sim/checkers/view_budget_checker.hpp"
#include "tests/sim/checkers/view_checker.hpp"
#include "tests/sim/event_queue.hpp"
#include "tests/sim/fault_plan.hpp"
#include "tests/sim/sample_order.hpp"
#include "tests/sim/sim_clock.hpp"
#include "tests/sim/sim_group.hpp"
#include "tests/sim/sim_worker.hpp"

namespace mayfly::sim {

/// The result of one run.
struct RunResult {
  std::vector<std::string> violations;  ///< empty if the run violated no invariant
  std::vector<std::string> history;     ///< one readable line per membership event
  std::uint64_t views = 0;
  std::uint64_t losses = 0;
  std::uint64_t joins = 0;
  std::uint64_t leaves = 0;
  std::uint64_t evictions = 0;
  std::uint64_t recoveries = 0;
  std::uint64_t expelled = 0;  ///< members that were evicted for a wrong state
  std::uint64_t failed = 0;    ///< jobs that could not decide whose state was wrong
  std::uint64_t stopped = 0;   ///< jobs that an operator stopped
  std::uint64_t rebalances = 0;
  std::uint64_t kept_sums = 0;    ///< microbatches that did not have to be computed again
  std::uint64_t fingerprint = 0;  ///< equal for two runs of the same scenario

  /// The counts by name, the most interesting ones first.
  [[nodiscard]] std::vector<std::pair<std::string, std::uint64_t>> counts() const;
};

/// An event at a worker.
using WorkerEvent = Callback<256, SimWorker&>;

class SimWorld {
 public:
  explicit SimWorld(const Scenario& scenario);
  [[nodiscard]] RunResult run();

  // For workers and groups:
  [[nodiscard]] const Scenario& scenario() const { return scenario_; }
  [[nodiscard]] Instant now() const { return queue_.now(); }
  [[nodiscard]] Duration draw_delay(Duration most);
  [[nodiscard]] std::uint64_t draw_below(std::uint64_t bound) { return random_.below(bound); }
  /// No two flips hit the same bit until all bits have been hit, so that two wrong states are never
  /// equal.
  [[nodiscard]] std::uint64_t next_bit_to_flip() {
    return std::uint64_t{1} << (scenario_.seed + 37 * flips_++) % 64;
  }
  /// The delay of a message that is sent now: `delay`, or longer if it would overtake the one that
  /// arrives at `last`.
  [[nodiscard]] Duration in_order(Instant& last, Duration delay);
  /// Runs `what` at that worker after `delay`: never if it is dead then, later if it is frozen.
  void at_worker(MemberId member, Duration delay, WorkerEvent what);
  void to_coordinator(std::size_t worker, const elastic::Message& message);
  void worker_died(std::size_t worker, bool silently);
  /// Memory for that worker's exchanges.
  [[nodiscard]] std::span<std::byte> scratch_of(MemberId member);
  [[nodiscard]] SimGroup& group_of(const elastic::View& view);
  [[nodiscard]] std::optional<MemberId> bad_partner(MemberId member,
                                                    const elastic::View& view) const;
  [[nodiscard]] std::optional<ToyState> state_of(MemberId member, std::uint64_t step) const;
  void count_kept(std::uint32_t microbatches) { result_.kept_sums += microbatches; }
  [[nodiscard]] ViewChecker& view_checker() { return view_checker_; }
  [[nodiscard]] CommitChecker& commit_checker() { return commit_checker_; }
  [[nodiscard]] SampleChecker& sample_checker() { return sample_checker_; }
  [[nodiscard]] CorruptionChecker& corruption_checker() { return corruption_checker_; }
  /// Whether another member than `but` compared its state in this step, and that state is right.
  [[nodiscard]] bool is_anyone_right(std::uint64_t step, const elastic::View& view, MemberId but);
  /// Whether the sum of a step is wrong and only the observer could have detected it.
  [[nodiscard]] bool comes_from_wrong(const ToySum& sum, std::uint64_t step,
                                      const elastic::View& view, MemberId observer);
  /// A member whose state is wrong committed a step of this view.
  void on_wrong_commit(MemberId member, std::uint64_t step, const elastic::View& view);
  [[nodiscard]] const SimWorker& worker_at(MemberId member) const;
  /// Starts a new worker, which may have found a checkpoint.
  void add_worker();
  /// The number of members of the last view that could vote on whose state is wrong.
  [[nodiscard]] std::size_t healthy_members() const;
  [[nodiscard]] const SimClock& clock_of(std::size_t worker) const {
    return machines_[worker].clock;
  }
  [[nodiscard]] LeaseChecker& lease_checker() { return lease_checker_; }
  /// Whether this observer does not receive the complete sum that all other members have. True once
  /// per fault.
  [[nodiscard]] bool misses_this_sum(MemberId observer);
  /// An observer has discarded its parts of the state, because its donors do not answer.
  void on_state_given_up() { disturbed(); }
  /// The members of this view are done, but not all of them know that yet.
  void maybe_crash_at_end(const elastic::View& view);
  /// A step's sums are complete on some member of the view.
  void on_reduced(ViewId view, std::uint64_t step,
                  const std::vector<elastic::MicrobatchSet>& parts);
  /// The sum of one microbatch: its gradient and its samples.
  [[nodiscard]] ToySum sum_of(ToyState state, std::uint64_t step, std::uint32_t microbatch) const;

 private:
  /// One worker's control connection: FIFO in each direction, whatever the delays.
  struct Connection {
    bool open = true;  // as the coordinator sees it
    Instant last_up;
    Instant last_down;
    Instant last_of_sentinel;  // on the sentinel's own connection
  };
  /// The machine of a worker and its sentinel.
  struct Machine {
    SimClock clock;
    Instant sentinel_still_until;
    Instant deaf_until;  // until then the machine answers nothing
  };

  // sim_world.cpp: network and coordinator
  void give(elastic::CoordinatorEvent event);
  void catch_up();
  void handle(const elastic::CoordinatorEvent& event);
  void carry_out(const elastic::CoordinatorEffect& effect);
  void to_worker(std::size_t worker, const elastic::Message& message);
  void close_connection(std::size_t worker);
  void at_index(std::size_t worker, Duration delay, WorkerEvent what);
  void thaw_later(std::size_t worker);
  void tick();
  void note(const elastic::coordinator_effect::Note& note);
  void evicted(MemberId member, const std::string& reason);
  void disturbed();
  void tell(const std::string& what, std::optional<MemberId> member, const std::string& detail);

  // sim_faults.cpp: clocks, sentinels, suspended machines
  [[nodiscard]] SimClock draw_clock();
  void beat(std::size_t worker);
  void beat_of_sentinel(std::size_t worker);
  template <typename Event>
  void from_sentinel(std::size_t worker, Event event);
  void probe(MemberId member);
  void stand_still(std::size_t worker, Standstill kind);
  void suspected(MemberId member);

  // sim_faults.cpp: faults
  void start_faults();
  void start_faults_of_workers();
  void every(Duration mean, std::function<void()> fault);
  void maybe_crash_on_view(const elastic::View& view);
  void break_a_link();
  void lose_many();
  void stop_the_job();
  void repeat_a_message();
  void keep_enough_workers();
  [[nodiscard]] std::vector<std::size_t> living() const;
  [[nodiscard]] std::optional<std::size_t> pick_living();

  Scenario scenario_;
  RandomStream random_;
  EventQueue queue_;
  Violations violations_;
  ViewChecker view_checker_;
  CommitChecker commit_checker_;
  MicrobatchChecker microbatch_checker_;
  SampleOrder sample_order_;
  SampleChecker sample_checker_;
  LeaseChecker lease_checker_;
  CorruptionChecker corruption_checker_;
  RebalanceChecker rebalance_checker_;
  SuspicionChecker suspicion_checker_;
  EvictionChecker eviction_checker_;
  ViewBudgetChecker budget_checker_;
  PaceChecker pace_checker_;
  LivenessChecker liveness_;
  elastic::Coordinator coordinator_;
  std::vector<std::unique_ptr<SimWorker>> workers_;
  std::vector<Connection> connections_;
  std::vector<Machine> machines_;       // by worker
  SimClock clock_;                      // the coordinator's
  std::set<std::size_t> failed_alone_;  // workers
  bool is_fail_asked_ = false;
  std::uint64_t flips_ = 0;                         // bits flipped so far
  bool next_sum_is_missed_ = false;                 // by an observer
  std::vector<std::deque<elastic::Message>> sent_;  // by worker: the last few to the coordinator
  Instant stalled_since_;
  Instant stalled_until_;                              // the coordinator's host
  std::deque<elastic::CoordinatorEvent> backlog_;      // events that it has not handled yet
  std::vector<std::unique_ptr<std::byte[]>> scratch_;  // by worker, when first needed
  std::vector<std::vector<WorkerEvent>> missed_;       // events while a worker was frozen
  std::map<MemberId, std::size_t> worker_of_;
  std::map<ViewId, std::unique_ptr<SimGroup>> groups_;
  std::vector<MemberId> last_members_;  // of the last view
  std::vector<std::pair<MemberId, MemberId>> bad_links_;
  RunResult result_;
};

/// Runs one scenario to its end.
[[nodiscard]] RunResult simulate(const Scenario& scenario);

}  // namespace mayfly::sim
