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
#include <vector>

#include "base/ids.hpp"
#include "base/random.hpp"
#include "base/time.hpp"
#include "cloud_hooks/core/bill.hpp"
#include "cloud_hooks/core/least_missed.hpp"
#include "cloud_hooks/core/offer_catalog.hpp"
#include "cloud_hooks/core/provider.hpp"
#include "cloud_hooks/core/replacement_events.hpp"
#include "cloud_hooks/core/replacement_options.hpp"

namespace mayfly::cloud_hooks {

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
