#include "tests/sim/failover_world.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "tests/sim/failover_parts.hpp"

namespace mayfly::sim {

using namespace elastic;

namespace {

constexpr Duration kBound = seconds(90);
constexpr Duration kSuspensionMin = milliseconds(200);
constexpr Duration kCoordinatorSilenceMax = seconds(2);  // then its members look for another one

Duration draw_between(RandomStream& random, Duration least, Duration most) {
  const auto width = static_cast<std::uint64_t>((most - least).count());
  return least + Duration(static_cast<std::int64_t>(random.below(width)));
}

}  // namespace

FailoverScenario draw_first_failover(std::uint64_t seed) {
  RandomStream random{CounterRandom(seed).split("failover")};
  FailoverScenario scenario;
  scenario.seed = seed;
  scenario.workers = static_cast<std::uint32_t>(1 + random.below(6));
  scenario.standbys = random.below(3) == 0 ? 0 : static_cast<std::uint32_t>(1 + random.below(2));
  scenario.steps = 100 + random.below(300);
  scenario.coordinator_crash_every = draw_between(random, milliseconds(300), seconds(5));
  if (random.below(2) == 0) {
    scenario.worker_crash_every = draw_between(random, milliseconds(400), seconds(5));
  }
  // Without standbys a view that is cut off as a whole would go on beside the next view.
  if (scenario.standbys > 0 && random.below(3) != 0) {
    scenario.cut_every = draw_between(random, milliseconds(300), seconds(4));
  }
  if (random.below(2) == 0) {
    scenario.join_every = draw_between(random, milliseconds(200), seconds(3));
  }
  scenario.loses_log_tails = scenario.standbys > 0 && random.below(2) == 0;
  if (random.below(2) == 0) {
    scenario.disk_full_every = draw_between(random, milliseconds(500), seconds(5));
  }
  const auto drift = static_cast<std::uint32_t>(1 + random.below(100));
  scenario.clock_drift_per_mille = random.below(2) == 0 ? drift : 0;
  // The next coordinator knows a pause only from the log. A standby has no log, and on a full disk
  // the log may lack the record of the pause.
  if (scenario.standbys == 0 && scenario.disk_full_every == Duration::zero() &&
      random.below(2) == 0) {
    scenario.pause_every = draw_between(random, milliseconds(300), seconds(4));
  }
  scenario.crash_on_view = random.below(3) == 0;
  scenario.crash_on_return = random.below(2) == 0;
  scenario.sentinels_tell_all = random.below(2) == 0;
  if (random.below(3) != 0) {
    scenario.progress_every = draw_between(random, milliseconds(10), milliseconds(200));
  }
  if (random.below(3) == 0) {
    scenario.min_workers_timeout = draw_between(random, seconds(4), seconds(20));
  }
  if (random.below(2) == 0) {
    scenario.resume_timeout = draw_between(random, milliseconds(300), seconds(4));
    scenario.quorum_timeout = draw_between(random, milliseconds(500), seconds(5));
  }
  return scenario;
}

FailoverScenario draw_failover(std::uint64_t seed) {
  FailoverScenario scenario = draw_first_failover(seed);
  RandomStream random{CounterRandom(seed).split("later failover")};
  if (random.below(4) == 0) {
    scenario.notice_every = draw_between(random, milliseconds(300), seconds(3));
  }
  if (random.below(4) == 0) {
    scenario.give_up_after = draw_between(random, milliseconds(500), seconds(4));
  }
  if (random.below(2) == 0) {
    scenario.end_takes = draw_between(random, milliseconds(5), milliseconds(500));
  }
  if (random.below(2) == 0) {
    scenario.delta_from_members = static_cast<std::uint32_t>(1 + random.below(3));
  }
  if (random.below(8) == 0) {
    scenario.replaces_nobody = true;
    scenario.join_every = Duration::zero();
    scenario.min_workers_timeout = draw_between(random, milliseconds(500), seconds(4));
  }
  if (scenario.standbys > 0 && random.below(4) == 0) {
    scenario.suspend_every = draw_between(random, milliseconds(500), seconds(5));
  }
  RandomStream wider{CounterRandom(seed).split("wider failover")};
  if (scenario.workers > 1 && wider.below(4) == 0) {
    scenario.spares = static_cast<std::uint32_t>(1 + wider.below(scenario.workers - 1));
  }
  if (wider.below(4) == 0) {
    scenario.min_workers =
        static_cast<std::uint32_t>(1 + wider.below(scenario.workers - scenario.spares));
  }
  if (wider.below(6) == 0) {
    scenario.stop_after = draw_between(wider, milliseconds(100), seconds(8));
  }
  if (wider.below(3) == 0) {
    scenario.copy_takes = draw_between(wider, milliseconds(20), milliseconds(600));
  }
  return scenario;
}

const std::vector<BrokenCore>& all_broken_cores() {
  static const std::vector<BrokenCore> all = {
      BrokenCore::kTakesOverAlone,       BrokenCore::kIgnoresQuorum,
      BrokenCore::kObeysOldIncarnations, BrokenCore::kBelievesTornLogs,
      BrokenCore::kReusesMemberIds,      BrokenCore::kForgetsWhenEvicted,
      BrokenCore::kForgetsPauses,        BrokenCore::kGivesUpEarly,
      BrokenCore::kForgetsTheEnd,        BrokenCore::kForgetsCommits};
  return all;
}

const char* name_of(BrokenCore broken) {
  switch (broken) {
    case BrokenCore::kNone: return "none";
    case BrokenCore::kTakesOverAlone: return "takes-over-alone";
    case BrokenCore::kIgnoresQuorum: return "ignores-quorum";
    case BrokenCore::kObeysOldIncarnations: return "obeys-old-incarnations";
    case BrokenCore::kBelievesTornLogs: return "believes-torn-logs";
    case BrokenCore::kReusesMemberIds: return "reuses-member-ids";
    case BrokenCore::kForgetsWhenEvicted: return "forgets-when-evicted";
    case BrokenCore::kForgetsPauses: return "forgets-pauses";
    case BrokenCore::kGivesUpEarly: return "gives-up-early";
    case BrokenCore::kForgetsTheEnd: return "forgets-the-end";
    case BrokenCore::kForgetsCommits: return "forgets-commits";
  }
  UNREACHABLE("every broken core has a name");
}

std::vector<std::pair<std::string, std::uint64_t>> FailoverResult::counts() const {
  return {{"done", is_done ? 1 : 0},
          {"views", views},
          {"coordinators crashed", crashes},
          {"times in charge", resumed},
          {"of them standbys", takeovers},
          {"cuts", cuts},
          {"suspensions", suspensions},
          {"records that did not fit", unwritten},
          {"rejoined", rejoins},
          {"commits undone", undone},
          {"gave up", gave_up},
          {"stopped", stopped},
          {"copies received", observed},
          {"copies continued", gone_on}};
}

std::string describe(const FailoverScenario& s) {
  return "seed " + std::to_string(s.seed) + ": " + std::to_string(s.workers) + " workers (" +
         std::to_string(s.spares) + " spares, at least " + std::to_string(s.min_workers) + "), " +
         std::to_string(s.standbys) + " standbys, " + std::to_string(s.steps) +
         " steps; milliseconds between" + ms("coordinator_crash", s.coordinator_crash_every) +
         ms("worker_crash", s.worker_crash_every) + ms("cut", s.cut_every) +
         ms("join", s.join_every) + ms("disk_full", s.disk_full_every) +
         ms("pause", s.pause_every) + ms("notice", s.notice_every) +
         ms("suspend", s.suspend_every) + (s.loses_log_tails ? " loses_log_tails" : "") +
         (s.crash_on_view ? " crash_on_view" : "") + (s.crash_on_return ? " crash_on_return" : "") +
         (s.sentinels_tell_all ? " sentinels_tell_all" : "") +
         (s.replaces_nobody ? " replaces_nobody" : "") + "; times" +
         ms("progress", s.progress_every) + ms("min_workers", s.min_workers_timeout) +
         ms("resume", s.resume_timeout) + ms("quorum", s.quorum_timeout) +
         ms("give_up", s.give_up_after) + ms("stop", s.stop_after) + ms("end", s.end_takes) +
         ms("copy", s.copy_takes) +
         (s.delta_from_members < s.workers ? "; views come as changes" : "") +
         (s.clock_drift_per_mille == 0
              ? std::string()
              : "; clocks drift by " + std::to_string(s.clock_drift_per_mille) + " per mille");
}

FailoverWorld::FailoverWorld(const FailoverScenario& scenario)
    : scenario_(scenario),
      random_(CounterRandom(scenario.seed).split("failover world")),
      incarnations_(violations_),
      evictions_(violations_),
      budget_(violations_, 4) {
  for (std::uint32_t i = 0; i <= scenario_.standbys; ++i) {
    hosts_.push_back(std::make_unique<Host>());
  }
}

FailoverWorld::~FailoverWorld() = default;

FailoverResult FailoverWorld::run() {
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    start_host(host);
  }
  for (std::uint32_t i = 0; i < scenario_.workers; ++i) {
    add_worker();
  }
  start_faults();
  while (!is_over_ && violations_.empty() && queue_.now() - Instant{} <= kBound &&
         queue_.run_one()) {
  }
  result_.is_done = is_over_ || is_known_done_;
  if (!result_.is_done && violations_.empty() && scenario_.must_end()) {
    violations_.add("the job does not end");
  }
  result_.violations = violations_.texts();
  return std::move(result_);
}

Duration FailoverWorld::draw(Duration most) {
  return Duration(
      static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(most.count()) + 1)));
}

void FailoverWorld::tell(std::string line) {
  result_.history.push_back(std::to_string(to_ms(queue_.now() - Instant{})) +
                            " ms: " + std::move(line));
}

// --- faults

void FailoverWorld::every(Duration mean, const std::function<void()>& fault) {
  if (mean == Duration::zero()) {
    return;
  }
  after(milliseconds(1) + draw(2 * mean), [this, mean, fault] {
    if (!is_calm_) {
      fault();
      every(mean, fault);
    }
  });
}

void FailoverWorld::start_faults() {
  every(scenario_.coordinator_crash_every, [this] { crash_soon(random_.below(hosts_.size())); });
  every(scenario_.worker_crash_every, [this] { kill_somebody(); });
  every(scenario_.pause_every, [this] { pause_the_job(); });
  every(scenario_.notice_every, [this] { ask_somebody_to_leave(); });
  every(scenario_.cut_every, [this] { cut_some_links(); });
  every(scenario_.suspend_every, [this] { suspend(random_.below(hosts_.size())); });
  every(scenario_.join_every, [this] {
    if (workers_.size() < 12) {
      add_worker();
    }
  });
  every(scenario_.disk_full_every, [this] {
    disk_full_until_ = std::max(disk_full_until_, queue_.now() + draw(scenario_.disk_full_max));
    tell("the disk is full");
  });
  if (scenario_.stop_after > Duration::zero()) {
    after(scenario_.stop_after, [this] { stop_the_job(); });
  }
  keep_enough_workers();
  after(scenario_.faults_end, [this] { end_faults(); });
}

/// Makes the coordinator crash between any two of its effects.
void FailoverWorld::crash_soon(std::size_t host) {
  if (hosts_[host]->core) {
    hosts_[host]->effects_to_live = random_.below(8);
  }
}

void FailoverWorld::kill_somebody() {
  const std::size_t worker = random_.below(workers_.size());
  if (workers_[worker]->alive) {
    kill_worker(worker);
  }
}

void FailoverWorld::ask_somebody_to_leave() {
  const std::size_t worker = random_.below(workers_.size());
  if (workers_[worker]->alive && workers_[worker]->member) {
    tell("member " + std::to_string(value(workers_[worker]->member->id())) + " is asked to leave");
    budget_.on_event();
    give_member(worker, member_event::LeaveAsked{"notice"});
  }
}

/// The operator sends the command to the first coordinator once, even if the coordinator is down.
void FailoverWorld::pause_the_job() {
  tell("an operator pauses the job");
  give(0, coordinator_event::PauseAsked{true});
  after(draw(scenario_.pause_max), [this] { resume_the_job(); });
}

/// The operator repeats the command until the first coordinator receives it.
void FailoverWorld::resume_the_job() {
  if (!hosts_[0]->core) {
    after(milliseconds(50), [this] { resume_the_job(); });
    return;
  }
  tell("an operator resumes the job");
  is_paused_ = false;
  budget_.on_event();
  const std::uint64_t life = hosts_[0]->life;
  give(0, coordinator_event::PauseAsked{false});
  if (!hosts_[0]->core || hosts_[0]->life != life) {  // no answer
    after(milliseconds(50), [this] { resume_the_job(); });
  }
}

/// The operator asks the coordinators that lead the job, and repeats the command until there is
/// one. If that one is lost, its successor may not know about the command.
void FailoverWorld::stop_the_job() {
  bool is_heard = false;
  for (std::size_t host = 0; host < hosts_.size() && !is_over_; ++host) {
    if (hosts_[host]->core && hosts_[host]->leads) {
      tell("an operator stops the job at coordinator " + std::to_string(host));
      is_heard = is_stop_asked_ = true;
      budget_.on_event();
      give(host, coordinator_event::StopAsked{"operator"});
    }
  }
  if (!is_heard) {
    after(milliseconds(50), [this] { stop_the_job(); });
  }
}

/// Divides the hosts into two sets, and cuts some links from one to the other, often both ways.
void FailoverWorld::cut_some_links() {
  ++result_.cuts;
  budget_.on_event();
  const std::size_t nodes = hosts_.size() + workers_.size();
  std::vector<bool> side(nodes);
  for (std::size_t node = 0; node < nodes; ++node) {
    side[node] = chance(2);
  }
  const bool both_ways = !chance(3);
  std::vector<std::pair<std::size_t, std::size_t>> links;
  for (std::size_t a = 0; a < nodes; ++a) {
    for (std::size_t b = 0; b < nodes; ++b) {
      if (side[a] && !side[b]) {
        links.emplace_back(a, b);
        if (both_ways) {
          links.emplace_back(b, a);
        }
      }
    }
  }
  cut_.insert(links.begin(), links.end());
  tell("some links are cut");
  after(draw(scenario_.cut_max), [this, links] {
    for (const auto& link : links) {
      cut_.erase(link);
    }
    tell("they are whole again");
  });
}

/// Suspends a coordinator's process; its host and its connections remain. Messages that arrive
/// meanwhile are read when the process continues, after the first tick.
void FailoverWorld::suspend(std::size_t index) {
  Host& host = *hosts_[index];
  if (!host.core || host.has_ended || suspension_of(index) > Duration::zero()) {
    return;
  }
  ++result_.suspensions;
  budget_.on_event();
  const Duration time = kSuspensionMin + draw(scenario_.suspend_max - kSuspensionMin);
  host.suspended_until = queue_.now() + time;
  tell("coordinator " + std::to_string(index) + " is suspended");
  after(time, [this, index, life = host.life] {
    if (hosts_[index]->life == life) {
      budget_.on_event();
      tell("coordinator " + std::to_string(index) + " continues");
      handle(index, coordinator_event::Tick{});
    }
  });
  after(kCoordinatorSilenceMax, [this, index, until = host.suspended_until] {
    if (hosts_[index]->suspended_until == until && until > queue_.now()) {
      leave_silent(index);
    }
  });
}

/// Members whose coordinator has been silent for long close their connections to it.
void FailoverWorld::leave_silent(std::size_t index) {
  const std::uint64_t life = hosts_[index]->life;
  for (std::size_t link = 0; link < links_.size(); ++link) {
    if (links_[link].host == index && links_[link].life == life) {
      const Duration noticed = draw(milliseconds(100));  // between two heartbeats of the member
      close_at_worker(link, noticed);
      if (!is_cut(node_of_worker(links_[link].worker), index)) {
        close_at_host(link, noticed + draw(milliseconds(5)));
      }
    }
  }
}

/// How long the coordinator's process does not continue yet.
Duration FailoverWorld::suspension_of(std::size_t host) const {
  return std::max(hosts_[host]->suspended_until - queue_.now(), Duration::zero());
}

void FailoverWorld::end_faults() {
  is_calm_ = true;
  cut_.clear();
  disk_full_until_ = queue_.now();
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    hosts_[host]->effects_to_live.reset();
    if (!hosts_[host]->core) {
      start_host(host);
    }
  }
  tell("no more faults");
}

void FailoverWorld::keep_enough_workers() {
  const auto living = static_cast<std::size_t>(
      std::count_if(workers_.begin(), workers_.end(), [](const auto& w) { return w->alive; }));
  if (living < scenario_.workers && (is_calm_ || (!scenario_.replaces_nobody && chance(4)))) {
    add_worker();
  }
  after(milliseconds(200), [this] { keep_enough_workers(); });
}

bool FailoverWorld::is_cut(std::size_t from, std::size_t to) const {
  return cut_.contains({from, to});
}

std::size_t FailoverWorld::node_of_worker(std::size_t worker) const {
  return hosts_.size() + worker;
}

}  // namespace mayfly::sim
