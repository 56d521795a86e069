#pragma once

// A simulated market of servers and a job that uses it, drawn from one seed: offers are sold out
// for a time, quotas, refusals, lost answers, late lists, servers that are taken away one by one or
// many at once, with and without a notice, providers that want a number of them back, workers that
// crash and restart or never start, operators that change the number of workers, restarted
// coordinators. ReplacementPolicy decides; the market has the true state, and checks the policy's
// promises with it.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "cloud_hooks/core/replacement_policy.hpp"

namespace mayfly::cloud_hooks::test_support {

/// Defects that are planted around the policy, and that the checks must detect.
enum class Sabotage {
  kNone,
  kNewIdForRepeats,  // a repeated request gets a new id
  kForgetsReleases,  // releases are never carried out
  kNoBudget,         // the policy does not get the budget
};

struct MarketResult {
  std::vector<std::string> violations;
  int created = 0;   // servers
  int taken = 0;     // servers taken away by the provider
  int restarts = 0;  // of the coordinator
  int repeats = 0;
  int stopped_by_budget = 0;
  int exchanges = 0;  // begun replacements of a server by one of another offer
  bool is_unnamed = false;
};

class MarketWorld {
 public:
  explicit MarketWorld(std::uint64_t seed, Sabotage sabotage = Sabotage::kNone);
  /// Runs the job to its end, and then until all servers should have ended.
  MarketResult run();

 private:
  struct Machine {
    std::size_t offer;
    std::string request_id;
    Instant created;
    Instant listed_from;  // earlier lists lack it
    ServerState state = ServerState::kStarting;
    std::optional<Instant> gone;
    std::optional<MemberId> member;
    Instant quiet_since;  // since when it has no worker, if it has none
    bool never_joins = false;
    bool releasing = false;
  };
  struct Pool {  // the true state of one offer
    int stock = 0;
    double refused_chance = 0;
    bool broken_image = false;
    std::optional<ProviderErrorKind> always;  // auth or config: the error of each request
  };
  struct Event {
    Instant at;
    std::uint64_t order;
    std::function<void()> act;
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  [[nodiscard]] static std::string pool_key(const Offer& offer);
  void set_up();
  void compose(std::uint64_t seed);
  void begin_policy(const PolicyStatus& before, bool restarted);
  void after(Duration delay, std::function<void()> act);
  Duration between(Duration least, Duration most);
  bool chance(double probability);
  void feed(const PolicyEvent& event);
  void carry_out(const PolicyEffect& effect);
  void wake();
  void check(const char* when);
  void violated(const std::string& what);

  void take_request(const ServerRequest& request);
  RequestOutcome serve(const ServerRequest& request);
  void create(const ServerRequest& request);
  void boot(const std::string& id);
  void join(const std::string& id);
  void tell_of(MemberId member, const std::string& id);
  void leave(MemberId member);
  void take_away(const std::string& id, bool with_notice);
  void lose_worker(const std::string& id);
  void end_machine(const std::string& id);
  void take_release(const std::string& id);
  void take_list();
  void disturb();
  void restart_coordinator();
  void calm_down();
  void check_calm();
  [[nodiscard]] ServerStatus describe(const std::string& id) const;
  [[nodiscard]] double true_cost() const;
  [[nodiscard]] double billed_too_much_at_most() const;
  [[nodiscard]] double true_per_hour() const;
  [[nodiscard]] std::vector<std::string> alive() const;

  RandomStream random_;
  RandomStream wants_back_;  // for servers that the provider wants back
  Sabotage sabotage_;
  ReplacementOptions options_;
  std::optional<double> budget_;
  std::vector<Pool> pools_;
  std::map<std::string, int> quota_;  // by machine type and market
  double lost_answers_ = 0, slow_answers_ = 0, list_errors_ = 0, release_errors_ = 0;
  double hazard_per_hour_ = 0;

  Instant now_{};
  std::uint64_t events_made_ = 0;
  std::uint64_t machines_made_ = 0;
  std::uint64_t members_made_ = 0;
  std::priority_queue<Event> queue_;
  std::unique_ptr<ReplacementPolicy> policy_;
  std::uint64_t term_ = 0;  // of the coordinator; answers to an earlier one are lost
  std::optional<Instant> wake_set_;
  std::map<std::string, Machine> machines_;
  std::map<std::string, ServerRequest> requests_;  // all requests so far, by id
  std::map<MemberId, std::string> members_;
  bool calm_ = false, ended_ = false, job_stopped_ = false;
  bool is_unnamed_ = false;  // workers do not report their servers' names
  std::uint32_t wanted_ = 0;
  MarketResult result_;
};

}  // namespace mayfly::cloud_hooks::test_support
