#pragma once

// A second small world, in which coordinators fail; the first one (sim_world.hpp) has a single
// coordinator that is never lost. Here coordinators crash between any two of their effects, restart
// with a torn log, have standbys, are suspended, and lose their connections to some or all members.
// Members outlive their coordinators. The coordinator, the member, the view log and the messages
// are the product's. A gradient group only checks that every member has contributed, and the copy
// of the state for an observer only takes time. A run uses one thread and is a function of its
// seed.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "elastic/core/coordinator.hpp"
#include "elastic/core/member.hpp"
#include "tests/sim/checkers/eviction_checker.hpp"
#include "tests/sim/checkers/incarnation_checker.hpp"
#include "tests/sim/checkers/view_budget_checker.hpp"
#include "tests/sim/checkers/violations.hpp"
#include "tests/sim/event_queue.hpp"

namespace mayfly::sim {

/// A defect that is planted in the core, and that a checker must detect.
enum class BrokenCore {
  kNone,
  kTakesOverAlone,        ///< a standby takes its only connected member for the whole view
  kIgnoresQuorum,         ///< the primary has standbys but publishes without a majority
  kObeysOldIncarnations,  ///< a member accepts every Welcome as one of the newest incarnation
  kBelievesTornLogs,      ///< a coordinator uses a damaged view at the end of the log
  kReusesMemberIds,       ///< a resumed coordinator counts members from 1 again
  kForgetsWhenEvicted,    ///< a member that joins again keeps its id, but not its incarnation
  kForgetsPauses,         ///< a resumed coordinator goes on with a job that is paused
  kGivesUpEarly,          ///< a coordinator without members waits for only a part of the time
  kForgetsTheEnd,         ///< a resumed coordinator goes on with a job that has ended
  kForgetsCommits,        ///< commits of a returning, stopped member within its view are ignored
};

struct FailoverScenario {
  std::uint64_t seed = 0;
  std::uint32_t workers = 4;
  std::uint32_t standbys = 0;     ///< more than 0: a quorum is required
  std::uint32_t spares = 0;       ///< so many of the workers have no place in a view
  std::uint32_t min_workers = 1;  ///< at most workers - spares
  std::uint64_t steps = 60;
  Duration coordinator_crash_every{};
  Duration worker_crash_every{};
  Duration cut_every{};  ///< links between two sets of hosts are cut, in one or both directions
  Duration join_every{};
  Duration
      disk_full_every{};  ///< the primary cannot write records to its log for disk_full_max at most
  Duration disk_full_max = seconds(2);
  Duration cut_max = seconds(3);
  Duration down_max = milliseconds(2500);
  Duration pause_every{};  ///< an operator pauses the job for pause_max at most
  Duration pause_max = seconds(1);
  Duration suspend_every{};  ///< a coordinator's process is suspended for suspend_max at most
  Duration suspend_max = seconds(4);
  bool crash_on_view = false;    ///< whenever a view is published, its author may crash, links may
                                 ///< be cut and members may die
  bool crash_on_return = false;  ///< members may die while a starting coordinator waits for them
  bool sentinels_tell_all = false;  ///< sentinels report deaths to every coordinator, and late
  Duration progress_every{};        ///< interval of the members' Progress messages; 0 = each step
  Duration min_workers_timeout = seconds(600);  ///< settings of the coordinator
  Duration resume_timeout = seconds(2);
  Duration quorum_timeout = seconds(3);
  bool loses_log_tails = false;  ///< a crash loses the part of the log that is not on the disk yet
  /// The clock of each coordinator is too fast or too slow by at most this much.
  std::uint32_t clock_drift_per_mille = 0;
  Duration notice_every{};   ///< a worker is asked to leave
  Duration give_up_after{};  ///< a worker leaves if it lacks a coordinator for so long; 0 = never
  Duration stop_after{};     ///< an operator stops the job; 0 = never
  Duration copy_takes{};  ///< longest time of a copy of the state to an observer; 0 = no observers
  bool replaces_nobody = false;           ///< no new worker joins as long as there are faults
  Duration end_takes{};                   ///< longest time of the members' work after the last step
  std::uint32_t delta_from_members = 32;  ///< views of so many members are announced as deltas
  Duration faults_end = seconds(10);
  BrokenCore broken = BrokenCore::kNone;

  /// False if so many members may be lost for good that there is never a majority again.
  [[nodiscard]] bool must_end() const {
    const bool nobody_goes = worker_crash_every == Duration::zero() &&
                             notice_every == Duration::zero() && give_up_after == Duration::zero();
    return standbys == 0 || nobody_goes;
  }
};

/// All defects, without kNone.
[[nodiscard]] const std::vector<BrokenCore>& all_broken_cores();
/// "takes-over-alone", ...; "none".
[[nodiscard]] const char* name_of(BrokenCore broken);

/// The scenario of this seed.
[[nodiscard]] FailoverScenario draw_failover(std::uint64_t seed);
/// The same without the kinds of faults that were added later, for older seeds that found defects.
[[nodiscard]] FailoverScenario draw_first_failover(std::uint64_t seed);
[[nodiscard]] std::string describe(const FailoverScenario& scenario);

struct FailoverResult {
  std::vector<std::string> violations;
  std::vector<std::string> history;
  bool is_done = false;
  std::uint64_t views = 0;
  std::uint64_t crashes = 0;    ///< of coordinators
  std::uint64_t resumed = 0;    ///< times that a restarted coordinator led the job again
  std::uint64_t takeovers = 0;  ///< by standbys
  std::uint64_t cuts = 0;
  std::uint64_t suspensions = 0;  ///< of coordinators
  std::uint64_t unwritten = 0;    ///< records that did not fit on the disk
  std::uint64_t rejoins = 0;
  std::uint64_t undone = 0;    ///< times that a committed step was computed again
  std::uint64_t gave_up = 0;   ///< jobs that ended because they had too few members
  std::uint64_t stopped = 0;   ///< jobs that an operator ended
  std::uint64_t observed = 0;  ///< observers that have received the state
  std::uint64_t gone_on = 0;   ///< times that an observer went on with its copy in the next view

  /// The counts by name, the most interesting ones first.
  [[nodiscard]] std::vector<std::pair<std::string, std::uint64_t>> counts() const;
};

class FailoverWorld {
 public:
  explicit FailoverWorld(const FailoverScenario& scenario);
  ~FailoverWorld();
  [[nodiscard]] FailoverResult run();

 private:
  struct Host;    // a coordinator's host
  struct Worker;  // a worker process and its trainer
  struct Copy;    // of the state, for an observer
  struct Link;    // a control connection
  struct Group;   // the gradient group of one view

  // failover_world.cpp: time, faults
  void after(Duration delay, std::function<void()> event) { queue_.after(delay, std::move(event)); }
  [[nodiscard]] Duration draw(Duration most);
  [[nodiscard]] bool chance(std::uint64_t of) { return random_.below(of) == 0; }
  void every(Duration mean, const std::function<void()>& fault);
  void start_faults();
  void crash_soon(std::size_t host);
  void kill_somebody();
  void pause_the_job();
  void resume_the_job();
  void ask_somebody_to_leave();
  void stop_the_job();
  void cut_some_links();
  void suspend(std::size_t host);
  void leave_silent(std::size_t host);
  void end_faults();
  void keep_enough_workers();
  [[nodiscard]] bool is_cut(std::size_t from, std::size_t to) const;
  [[nodiscard]] Duration suspension_of(std::size_t host) const;
  [[nodiscard]] std::size_t node_of_worker(std::size_t worker) const;
  void tell(std::string line);

  // failover_hosts.cpp: coordinators and connections
  void start_host(std::size_t host);
  void crash_host(std::size_t host);
  [[nodiscard]] bool must_not_lead(const elastic::CoordinatorEffect& effect) const;
  void append(Host& host, const elastic::coordinator_effect::Append& append, bool torn);
  void tick(std::size_t host, std::uint64_t life);
  void when_read(std::size_t host, std::function<void()> what);
  void give(std::size_t host, elastic::CoordinatorEvent event);
  void handle(std::size_t host, const elastic::CoordinatorEvent& event);
  void carry_out(std::size_t host, const elastic::CoordinatorEffect& effect);
  void to_worker(std::size_t link, const elastic::Message& message);
  void to_host(std::size_t link, const elastic::Message& message);
  void close_at_worker(std::size_t link, Duration delay);
  void close_at_host(std::size_t link, Duration delay);
  void note(std::size_t host, const elastic::coordinator_effect::Note& note);
  void published(std::size_t host, const elastic::View& view);
  [[nodiscard]] bool is_known_to(std::size_t host, const Worker& worker) const;
  void ended(std::size_t host, elastic::Outcome outcome);

  // failover_workers.cpp: members
  void add_worker();
  void kill_worker(std::size_t worker);
  void tell_of_death(std::size_t worker, std::size_t host, const elastic::Hello& who);
  void give_up_if_alone(std::size_t worker);
  void connect(std::size_t worker);
  void reconnect(std::size_t worker, bool elsewhere, std::uint32_t skip = 0);
  void beat(std::size_t worker);
  void on_message(std::size_t worker, const elastic::Message& message);
  void on_lost(std::size_t worker);
  void give_member(std::size_t worker, const elastic::MemberEvent& event);
  void carry_out(std::size_t worker, const elastic::MemberEffect& effect);
  void load(std::size_t worker);
  void rejoin(std::size_t worker, const std::optional<elastic::Former>& former);
  void end_with_last_worker(elastic::DismissReason reason);
  void begin_step(std::size_t worker);
  void stop_trainer(std::size_t worker, bool failed, std::optional<MemberId> culprit);
  void in_view(std::size_t worker, Duration delay, std::function<void()> event);

  // failover_observers.cpp: observers
  void begin_to_observe(std::size_t worker);
  void observe(std::size_t worker);
  void take_copy(std::size_t worker);
  void end_observers(const Group& group);
  [[nodiscard]] std::uint64_t position(const Worker& worker) const;

  // failover_groups.cpp: groups
  [[nodiscard]] Group& group_of(const elastic::View& view);
  void enter(std::size_t worker);
  void formed(std::size_t worker);
  void contribute(std::size_t worker);
  void do_the_rest(std::size_t worker);
  void leave(std::size_t worker, Duration grace);
  void tell_broken(Group& group, MemberId member, MemberId culprit, Duration delay);
  [[nodiscard]] std::optional<MemberId> unreachable(const Group& group) const;

  FailoverScenario scenario_;
  RandomStream random_;
  EventQueue queue_;
  Violations violations_;
  IncarnationChecker incarnations_;
  EvictionChecker evictions_;
  ViewBudgetChecker budget_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Link> links_;
  std::map<std::pair<ViewId, std::uint64_t>, std::unique_ptr<Group>> groups_;
  std::set<std::pair<std::size_t, std::size_t>> cut_;  // from, to
  std::map<MemberId, std::size_t> worker_of_;
  Instant disk_full_until_;
  bool is_paused_ = false;  // the operator has paused the job and not resumed it
  bool is_calm_ = false;
  bool is_stop_asked_ = false;  // a coordinator has received an operator's request
  bool is_over_ = false;
  bool is_known_done_ = false;  // a member knows that the job is done, or stopped; others may not
  FailoverResult result_;
};

[[nodiscard]] inline FailoverResult simulate(const FailoverScenario& scenario) {
  return FailoverWorld(scenario).run();
}

}  // namespace mayfly::sim
