#pragma once

// One run of a simulated job with parameter servers. Its functions are in
// parameter_server_world.cpp (workers and their messages), parameter_server_views.cpp (membership)
// and parameter_server_faults.cpp (faults).

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "collectives/parameter_server/core/straggler_watch.hpp"
#include "tests/sim/event_queue.hpp"
#include "tests/sim/parameter_server_members.hpp"
#include "tests/sim/parameter_server_shards.hpp"
#include "tests/sim/parameter_server_worker.hpp"
#include "tests/sim/parameter_server_world.hpp"

namespace mayfly::sim {

inline constexpr std::uint64_t kPsSliceUs = 1000;
inline constexpr std::uint64_t kPsLatencyUs = 200;
inline constexpr std::uint64_t kPsJobUs = 20'000;  // faults occur within this time

class PsRun {
 public:
  explicit PsRun(const PsOptions& options);
  PsResult run();

 private:
  PsWorker& worker(MemberId id) { return *workers_.at(id); }
  PsReplica& first_shard() { return shards_.leader(0); }
  bool first_is_over() { return first_shard().core.leases()->is_over(); }
  [[nodiscard]] Duration some_time();
  PsResult finish();
  void tell(std::string line);

  // parameter_server_views.cpp
  void add_worker() { add_worker_on(static_cast<std::uint32_t>(workers_.size())); }
  void add_worker_on(std::uint32_t host);
  void add_servers();
  void greet(PsWorker& w);
  void greet_first(PsWorker& w);
  void publish();
  void learn(PsWorker& w);
  void connect_again(PsWorker& w, std::uint32_t s);
  void took_over(std::uint32_t s);
  void on_published(const elastic::View& view);
  void on_met(MemberId id, const elastic::View& view);
  void on_held(MemberId id);
  void on_left(MemberId id, const elastic::member_effect::Leave& leave);
  void on_reports_taken(MemberId id);
  [[nodiscard]] PsMembers::Hooks member_hooks();
  [[nodiscard]] std::optional<MemberId> host_of_first_shard();
  void check_quiet();
  void order(MemberId server, std::function<void()> what);
  void replace_the_last();
  void say_bye(PsWorker& w, std::uint32_t s);
  void last_checkpoint();

  // parameter_server_world.cpp
  void send_up(PsWorker& from, std::uint32_t s, std::function<void()> message);
  void send_down(MemberId id, std::uint32_t s, std::function<void(PsWorker&)> message);
  void hello(PsWorker& from, std::uint32_t s);
  void deliver(const parameter_server::Grants& grants);
  void note_lease(MemberId id, const parameter_server::Lease& lease);
  void note_neglect(MemberId given);
  void follow_stragglers(std::uint32_t i);
  void answer(std::uint32_t s, const std::map<MemberId, std::uint64_t>& questions,
              std::uint64_t version, std::uint64_t model);
  void act(PsWorker& w);
  void send_pull(PsWorker& w, const parameter_server::flow::Pull& pull);
  [[nodiscard]] std::uint64_t confirmed(const PsWorker& w) const;
  void send_rest(PsWorker& w);
  void begin(PsWorker& w, std::uint64_t slice, std::uint32_t count,
             std::function<void(PsWorker&)> then);
  void send_push(PsWorker& w, const parameter_server::flow::Compute& compute);
  [[nodiscard]] bool is_neglected(const PsWorker& w) const;
  void note_push(MemberId id);
  bool record(PsWorker& w, const parameter_server::flow::Snapshot& snapshot);

  // parameter_server_faults.cpp
  void plan_faults();
  [[nodiscard]] Duration some_moment();
  void plan_pauses(const std::vector<std::pair<Duration, Duration>>& pauses);
  void cut_off(MemberId id);
  void notice_cuts(const PsWorker& w);
  void hold();
  [[nodiscard]] std::vector<MemberId> living() const { return sim::living(workers_); }
  void kill_one();
  void drain_one();
  [[nodiscard]] bool carries(const PsWorker& w) const;
  void declare_lost_soon(PsWorker& victim, bool is_dead);
  void disown_one();
  void lose_server(bool dies);
  void break_one();

  const PsOptions options_;
  RandomStream random_;
  const parameter_server::SyncPlan plan_;
  EventQueue queue_;
  std::optional<parameter_server::StragglerWatch> speeds_{parameter_server::StragglerOptions{}};
  PsShards shards_;
  PsWorkers workers_;
  std::set<MemberId> roster_;
  PsResult result_;
  // With a coordinator:
  std::optional<PsMembers> members_;
  std::map<std::uint32_t, MemberId> servers_;  // by index
  std::map<MemberId, Instant> last_order_;     // to a server's shards
  ViewId met_by_first_{};                      // the newest view that shard 0's leader has met
  bool quiet_reported_ = true;
  bool has_begun_ = false;  // the job has had a view
};

}  // namespace mayfly::sim
