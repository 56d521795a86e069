#pragma once

// Decides which servers a job requests and which it releases. A pure state machine: events with
// their time go in, effects come out. It has no clock, and the same code runs in the product
// (cloud_hooks/provider_driver) and in simulated markets.
//
// Its invariants, whatever the provider answers:
// - The number of workers' servers that are to stay, or that an open request may bring, is never
//   larger than max. A request that was given up may still bring more, which are released at once.
// - The hourly cost of all servers stays within the hourly budget. The job is stopped, and then
//   every server released, early enough that the total budget is not exceeded as long as releasing
//   takes no longer than `release_margin`.
// - With a composition, missing servers are requested of the offers that have fewer than it wants,
//   and in place of those that are refused, of the others. Later they are exchanged.
// - No offer has more servers, that are to stay or may still appear, than its own limit.
// - A request without a known answer is only repeated unchanged, with the same id, until it is
//   answered or list() shows what became of it.
// - The job never waits for a replacement; it continues with the workers that it has.
// - A server is not released for lack of a worker while a worker that did not name its server may
//   run on it.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.hpp"
#include "base/random.hpp"
#include "base/time.hpp"
#include "cloud_hooks/core/bill.hpp"
#include "cloud_hooks/core/least_missed.hpp"
#include "cloud_hooks/core/offer_catalog.hpp"
#include "cloud_hooks/core/provider.hpp"

namespace mayfly::cloud_hooks {

struct ReplacementOptions {
  std::uint64_t identity = 0;  ///< random for each process; the ids of its requests follow from it
  /// Eight hexadecimal digits with which the ids of all its requests end, the same for each
  /// process of a job: what is listed with another one belongs to another job of the same name.
  /// Empty: whatever is listed belongs to this job.
  std::string job_mark;
  std::uint32_t target = 1;           ///< workers wanted
  std::uint32_t max = 1;              ///< target stays within 1 and max
  std::uint32_t on_demand_floor = 0;  ///< least number on demand, if there are such offers
  /// Servers of the offers that are for evaluators, in addition to target and max. 0 also if
  /// evaluators use the workers' offers: they are a part of target and max then.
  std::uint32_t evaluators = 0;
  std::vector<OfferTerms> offers;                           ///< at least one
  std::vector<std::pair<std::string, std::string>> labels;  ///< of every request
  std::string startup_text;                                 ///< of every request
  Capabilities provider;
  /// Requests that may wait for their answers at the same time; further ones are decided when one
  /// of them is answered, by what is wanted and affordable then. 0 = any number.
  std::uint32_t requests_at_once = 0;
  std::uint32_t microbatches = 0;  ///< of a step; 0 = unknown
  /// The share of the time to come in which a server of this age, or its replacement, works; a pure
  /// function. Empty: it is the same for all.
  std::function<double(const Offer& offer, Duration age)> up_share;

  std::optional<double> budget;           ///< for the whole job
  std::optional<double> budget_per_hour;  ///< for all servers together
  double spent_before = 0;                ///< by earlier processes of this job, until now
  double per_hour_before = 0;  ///< hourly cost of their servers, until it is known which still run
  /// There were earlier processes, whose requests may still appear in lists.
  bool restarted = false;
  /// Their cost is in spent_before; otherwise servers that they left are billed from their start.
  bool spent_is_known = true;

  Duration lifetime_max = seconds(86400);  ///< of a server; 0 = no limit
  Duration billed_at_least = seconds(60);  ///< shortest billed time of a server
  Duration stop_margin = seconds(300);     ///< the job is stopped this long before the budget's end
  Duration release_margin = seconds(60);   ///< all servers are released this long before it
  Duration gather = milliseconds(20);      ///< losses within this time are one batch
  Duration start_timeout = seconds(600);   ///< from granted to running
  Duration join_timeout = seconds(600);    ///< from running to a worker in the job
  /// For a lost worker to join again on its server. As long as the provider has not answered since
  /// the loss, this process may be the one that is cut off: the time begins anew with its answer.
  Duration rejoin_patience = seconds(15);
  Duration leave_timeout = seconds(120);    ///< from the order to leave to the release
  Duration surplus_patience = seconds(60);  ///< before servers beyond the target are given up
  /// An on-demand server is exchanged for a spot server, and one that a composition does not want
  /// for one that it wants, of an offer without refusals and bursts of losses for this long; 0 =
  /// never.
  Duration back_to_spot_after = seconds(900);
  Duration shun_after_burst = seconds(120);  ///< an offer that lost many servers at once is last
  Duration list_every = seconds(15);         ///< reconciliation
  Duration absence_grace = seconds(45);      ///< a new server may be missing in lists this long
  Duration rate_wait = seconds(1);           ///< before a request is repeated; doubles
  Duration rate_wait_max = seconds(30);
  int repeats_max = 6;  ///< of one request; after that list() shows what became of it
  BackoffOptions backoff;
};

namespace policy_event {
struct Begin {};  ///< the first event, once
struct Tick {};   ///< the time of next_wake() is reached
struct Scaled {   ///< an operator sets the number of workers; stopped offers may be used again
  std::uint32_t target;
};
struct WantedBack {  ///< an operator gives up so many more servers, which are replaced
  std::uint32_t count;
};
struct Answered {  ///< to effect Request
  std::string request_id;
  RequestOutcome outcome;
};
struct Listed {  ///< to effect List
  Answer<std::vector<ServerStatus>> answer;
  std::uint32_t wanted_back = 0;  ///< see Provider::wanted_back
};
struct ReleaseAnswered {  ///< to effect Release
  std::string server;
  std::optional<ProviderError> error;
};
struct Joined {  ///< a worker is a member of the job; server empty = it did not name its server
  MemberId member;
  std::string server;
};
/// The member cannot be replaced (a parameter server): from now on its server is never given up for
/// a smaller target or a better price.
struct Irreplaceable {
  MemberId member;
};
struct Leaving {  ///< the member will leave at a boundary: a notice, an order
  MemberId member;
};
struct Gone {  ///< the worker is no longer a member: lost, evicted, or left
  MemberId member;
};
struct Measured {  ///< the member's speed, in a unit that is the same for all members
  MemberId member;
  double speed;
};
struct Closing {};  ///< the job has ended and its last members leave: no further requests
struct Ended {};    ///< all members have left: every server is released
}  // namespace policy_event

using PolicyEvent =
    std::variant<policy_event::Begin, policy_event::Tick, policy_event::Scaled,
                 policy_event::WantedBack, policy_event::Answered, policy_event::Listed,
                 policy_event::ReleaseAnswered, policy_event::Joined, policy_event::Irreplaceable,
                 policy_event::Leaving, policy_event::Gone, policy_event::Measured,
                 policy_event::Closing, policy_event::Ended>;

namespace policy_effect {
struct Request {  ///< to be answered by Answered
  ServerRequest request;
  bool is_repeat = false;
  std::optional<Instant> loss;  ///< time of the report of the first loss that it replaces
};
struct Release {  ///< to be answered by ReleaseAnswered
  std::string server;
};
struct List {};  ///< to be answered by Listed; never a second one before that
struct Drain {   ///< tell the member to leave at a boundary
  MemberId member;
};
struct StopJob {  ///< with a checkpoint
  std::string reason;
};
/// An event for records and messages.
struct Tell {
  std::string kind;  ///< server_granted, server_refused, server_joined, server_lost, server_ended,
                     ///< server_adopted, server_given_up, servers_chosen, request_given_up,
                     ///< worker_unnamed, release_failed, list_failed, offer_stopped,
                     ///< offers_exhausted, no_server_starts, budget, back_to_spot,
                     ///< back_to_composition
  std::string detail;
  std::string server;          ///< empty = none in particular
  std::optional<double> cost;  ///< total cost, if a server or request has ended
  bool for_evaluator = false;  ///< of a server: its offer is for evaluators
};
}  // namespace policy_effect

using PolicyEffect =
    std::variant<policy_effect::Request, policy_effect::Release, policy_effect::List,
                 policy_effect::Drain, policy_effect::StopJob, policy_effect::Tell>;

/// The policy's view, for `mayfly status`, records and tests.
struct PolicyStatus {
  std::uint32_t target = 0;
  std::uint32_t staying = 0;  ///< workers and servers that count for the target
  std::uint32_t coming = 0;   ///< requested for the target, not yet answered
  std::uint32_t billing = 0;  ///< servers that are not known to be gone
  double spent = 0;
  double per_hour = 0;
  /// Every offer for workers is stopped, by failed starts or wrong settings, no request for one has
  /// servers that are not known, and no server is there that may still bring one.
  bool no_worker_comes = false;
};

/// The servers that compute, for decisions about how many there should be.
struct Composition {
  struct Part {
    Offer offer;
    double price_per_hour = 0;
    double speed = 0;          ///< in the unit of policy_event::Measured, as soon as there is one
    bool is_measured = false;  ///< that speed, of a worker on this machine type
    Duration age{};            ///< since it was granted
  };
  std::vector<Part> working;  ///< without evaluators and what is irreplaceable
  std::optional<Part> next;   ///< what would be asked for now, if the budget allows one more
  bool is_settled = false;    ///< as many as wanted are there, and none is coming or leaving
};

class ReplacementPolicy {
 public:
  explicit ReplacementPolicy(ReplacementOptions options);

  /// Processes one event and returns the effects. Times of successive events never decrease.
  [[nodiscard]] std::vector<PolicyEffect> handle(Instant now, const PolicyEvent& event);
  /// The time of the next Tick, if no other event happens before; none = never.
  [[nodiscard]] std::optional<Instant> next_wake() const { return wake_; }
  [[nodiscard]] PolicyStatus status(Instant now) const;
  [[nodiscard]] Composition composition(Instant now) const;
  /// After Ended: no known server is billed any more, no answer is missing, and the servers of
  /// earlier processes are known.
  [[nodiscard]] bool settled() const;

 private:
  enum class Stage {
    kAwaited,    // no worker yet
    kWorking,    // its worker is a member
    kUnnamed,    // one of the workers that do not say where they run may be on it
    kSilent,     // its worker was lost; it may come back until `deadline`
    kLeaving,    // its worker leaves, or it is being taken away
    kReleasing,  // we ended it and wait for it to be gone
  };
  struct Server {
    std::optional<std::size_t> offer;  // none: adopted, and not on our list
    std::string request_id;
    Stage stage = Stage::kAwaited;
    Instant seen;                     // when we first heard of it
    Instant born;                     // when its provider granted it
    Instant asked;                    // no worker on it can have joined us earlier
    bool runs = false;                // it was seen running
    bool has_price = false;           // its provider has said what it costs
    bool never_joined = false;        // it began to end before its worker had joined
    bool is_adopted = false;          // of no request of ours: its worker may have joined before
    Instant silent_since;             // is_silent(); without a deadline: until the provider answers
    Instant looked_for;               // when the last list was asked for that its provider knew of
    std::optional<Instant> deadline;  // of the stage
    std::optional<Instant> ends;      // by its own lifetime
    std::optional<MemberId> member;
    std::uint32_t order = 0;  // younger servers have higher ones
    [[nodiscard]] bool stays() const {
      return stage == Stage::kAwaited || stage == Stage::kWorking;
    }
    [[nodiscard]] bool is_used() const { return stays() || stage == Stage::kUnnamed; }
  };
  struct MemberInfo {
    std::string server;  // empty: it does not say
    Instant joined;
    bool leaves = false;
    bool server_is_gone = false;
    bool has_presumed_server = false;  // if it does not say: a server was taken for its own
    double speed = 0;                  // 0 = not measured yet
    bool is_irreplaceable = false;
  };
  struct Pending {
    ServerRequest request;
    std::size_t offer = 0;
    Instant sent;  // for the first time: billing may have begun then
    int repeats = 0;
    std::optional<Instant> repeat_at;  // none: an answer is awaited
    std::optional<Instant> unsettled;  // given up then; list() decides
    std::set<std::string> servers;     // known to be its own
    Instant looked;                    // when the last list was asked for since then, or sent
    Duration unseen{};                 // the longest time between two such moments
    [[nodiscard]] std::uint32_t missing() const {
      const auto known = static_cast<std::uint32_t>(servers.size());
      return known < request.count ? request.count - known : 0;  // a list may show more
    }
  };

  // replacement_policy.cpp: events.
  void on(Instant now, const policy_event::Begin& event);
  void on(Instant now, const policy_event::Tick& event);
  void on(Instant now, const policy_event::Scaled& event);
  void on(Instant now, const policy_event::WantedBack& event);
  void on(Instant now, const policy_event::Listed& event);
  void on(Instant now, const policy_event::ReleaseAnswered& event);
  void on(Instant now, const policy_event::Closing& event);
  void on(Instant now, const policy_event::Ended& event);
  [[nodiscard]] bool is_of_another_job(const ServerStatus& status) const;
  void tell_of_other_jobs(const std::vector<ServerStatus>& servers);
  void reconcile(Instant now, const std::vector<ServerStatus>& servers);
  void wait_anew_for_silent(Instant now);
  [[nodiscard]] bool has_unlisted_loss() const;
  void settle_requests();
  void granted_and_gone(Instant now, const ServerStatus& status, Pending& pending);
  void bill_the_missing(const Pending& pending);
  void track(Instant now, const ServerStatus& status, const Pending* pending);
  void refresh(Instant now, Server& server, const ServerStatus& status);
  void note_price(const Server& server, const ServerStatus& status, double before);
  void never_joined(Instant now, const std::string& id, const Server& server);
  void failed_to_start(Instant now, const Server& server, const std::string& id,
                       const std::string& what);
  void failed_to_start(Instant now, std::size_t offer, const std::string& id,
                       const std::string& what);
  void server_gone(Instant now, const std::string& id, const ServerStatus& status);

  // replacement_plan.cpp: workers and their servers.
  void on(Instant now, const policy_event::Joined& event);
  void on(Instant now, const policy_event::Irreplaceable& event);
  void on(Instant now, const policy_event::Leaving& event);
  void on(Instant now, const policy_event::Gone& event);
  void on(Instant now, const policy_event::Measured& event);
  void worker_lost(Instant now, const std::string& id, Server& server);
  void presume_server(MemberInfo& member);
  void presume_worker(Server& server);
  void count_together(MemberInfo& member, Server& server);
  void unnamed_lost(Instant now);
  [[nodiscard]] bool has_unnamed() const;
  [[nodiscard]] std::uint32_t counted_twice() const;
  [[nodiscard]] bool is_silent(const Server& server) const;
  [[nodiscard]] bool is_loss_unlisted(const Server& server) const;
  [[nodiscard]] bool may_have_unnamed_worker(const Server& server) const;

  // replacement_plan.cpp: what follows from what is known.
  void plan(Instant now);
  void watch_stages(Instant now);
  void stage_is_over(Instant now, const std::string& id, Server& server);
  void release_all(Instant now);
  void release_unused(Instant now);
  void request_list(Instant now);
  void let_go(Instant now, const std::string& id);
  void release(Instant now, const std::string& id);
  [[nodiscard]] bool is_for_evaluator(const Server& server) const;
  [[nodiscard]] std::uint32_t staying() const;
  [[nodiscard]] std::uint32_t coming() const;
  [[nodiscard]] bool no_worker_comes() const;
  [[nodiscard]] std::uint32_t evaluators_missing() const;
  [[nodiscard]] std::uint32_t present(std::size_t offer) const;
  [[nodiscard]] std::uint32_t on_demand_present() const;
  [[nodiscard]] std::optional<Instant> find_next_wake(Instant now) const;

  // replacement_surplus.cpp: giving up.
  void give_up_surplus(Instant now);
  void keep_hourly_budget(Instant now);
  void give_back(Instant now, std::uint32_t count, const std::string& why);
  void give_up(Instant now, const std::vector<std::string>& ids, const std::string& why);
  /// Which servers a choice is between.
  using IsAmong = std::function<bool(const std::string& id, const Server& server)>;
  [[nodiscard]] std::vector<std::string> least_wanted(Instant now, std::uint32_t count) const;
  [[nodiscard]] std::vector<std::string> least_wanted_among(Instant now, std::uint32_t count,
                                                            const IsAmong& is_among) const;
  [[nodiscard]] std::vector<std::string> least_missed_workers(Instant now, std::size_t count,
                                                              std::size_t on_demand_most,
                                                              const IsAmong& is_among) const;
  [[nodiscard]] std::string reason_of_choice(Instant now,
                                             const std::vector<std::string>& ids) const;
  [[nodiscard]] ServerWorth worth_of(Instant now, const std::string& id,
                                     const Server& server) const;
  [[nodiscard]] double speed_of(const Server& server) const;
  [[nodiscard]] bool may_be_given_up(const std::string& id, const Server& server) const;
  [[nodiscard]] bool is_irreplaceable(const Server& server) const;
  [[nodiscard]] bool is_on_demand(const Server& server) const;

  // replacement_exchange.cpp: back to spot, and to the composition.
  struct Exchange {
    std::string server;      // that gives way, until its successor works
    std::string request_id;  // of the successor
  };
  struct PossibleExchange {
    std::string server;
    std::size_t offer;
    Instant due;
  };
  void watch_exchange(Instant now);
  void begin_exchange(Instant now);
  void end_exchange(Instant now);
  [[nodiscard]] std::optional<PossibleExchange> find_exchange() const;
  [[nodiscard]] bool may_give_way(const Server& server) const;
  [[nodiscard]] bool is_better(std::size_t offer, std::size_t than) const;
  [[nodiscard]] std::optional<Instant> next_exchange_wake(Instant now) const;
  [[nodiscard]] bool is_exchanged(const std::string& id) const;
  [[nodiscard]] bool is_at_work(Instant now, const Server& server) const;

  // replacement_requests.cpp: asking, what it may cost, and the answers.
  void on(Instant now, const policy_event::Answered& event);
  void drop_never_made(const policy_event::Answered& answer);
  void refused(Instant now, Pending& pending, const ProviderError& error);
  void quota_refused(Instant now, const Pending& pending, const ProviderError& error);
  void unanswered(Instant now, Pending& pending, const ProviderError& error);
  void forget(const std::string& request_id);
  void watch_budget(Instant now);
  [[nodiscard]] std::optional<Instant> next_budget_alarm(Instant now) const;
  void repeat_requests(Instant now);
  void ask_for_missing(Instant now);
  void shun_bursts(Instant now);
  void tell_exhausted(Instant now, std::uint32_t missing, bool lacks_workers);
  std::uint32_t ask_for_workers(Instant now, std::uint32_t missing);
  /// The most servers that may be asked for of an offer.
  using MostOf = std::function<std::uint32_t(std::size_t offer)>;
  std::uint32_t ask(Instant now, std::uint32_t wanted, const MostOf& most_of);
  [[nodiscard]] bool may_send() const;
  [[nodiscard]] std::uint32_t room(std::size_t offer) const;
  [[nodiscard]] std::vector<std::uint32_t> lacking() const;
  std::string send_request(Instant now, std::size_t offer, std::uint32_t count);
  [[nodiscard]] std::uint32_t affordable(Instant now, std::size_t offer,
                                         std::uint32_t wanted) const;
  [[nodiscard]] Duration lifetime_of(Instant now, std::size_t offer) const;

  void tell(std::string kind, std::string detail, std::string server = {},
            std::optional<double> cost = {});
  [[nodiscard]] double price_of(const Server& server) const;
  [[nodiscard]] static std::string billing_item(const Pending& pending);
  [[nodiscard]] std::string describe(const Server& server) const;

  const ReplacementOptions options_;
  std::uint32_t target_;
  OfferCatalog catalog_;
  Bill bill_;
  CounterRandom random_;
  std::uint64_t requests_made_ = 0;
  std::uint32_t servers_seen_ = 0;

  std::map<std::string, Server> servers_;        // that are not known to be gone
  std::map<std::string, Instant> billed_until_;  // servers that were taken for gone then
  std::map<MemberId, MemberInfo> members_;
  std::map<std::string, Pending> pending_;  // by request id
  bool may_ask_ = false;                    // what earlier processes left behind is known
  Instant begun_{};
  bool is_closing_ = false;
  bool ended_ = false;
  bool budget_stopped_ = false;  // the job was told to stop
  bool budget_is_over_ = false;  // everything is released
  bool told_exhausted_ = false;
  bool told_unnamed_ = false;
  bool told_of_other_jobs_ = false;
  std::optional<ProviderErrorKind> told_list_error_;

  bool list_in_flight_ = false;
  Instant list_asked_{};
  Instant list_due_{};
  std::optional<Instant> gather_until_;          // set while workers are missing
  std::optional<Instant> first_loss_;            // of those not yet asked for
  std::map<std::size_t, std::uint32_t> losses_;  // of this batch, by offer
  std::optional<Instant> surplus_since_;
  bool shrinks_ = false;  // an operator asked for fewer: no patience
  std::optional<Exchange> exchange_;
  int exchange_failures_ = 0;  // in a row
  Instant exchange_due_{};     // not before
  std::optional<Instant> wake_;
  std::vector<PolicyEffect> effects_;
};

}  // namespace mayfly::cloud_hooks
