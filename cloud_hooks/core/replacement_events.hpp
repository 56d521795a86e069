#pragma once

// The events of ReplacementPolicy, its effects, and the status that it publishes. Plain data.
// Prices and costs are in the currency of the offers' prices.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "cloud_hooks/core/provider.hpp"

namespace mayfly::cloud_hooks {

namespace policy_event {
struct Begin {};  ///< the first event, once
struct Tick {};   ///< the time of next_wake() is reached
struct Scaled {   ///< an operator sets the number of workers; stopped offers may be used again
  std::uint32_t target;
};
struct WantedBack {  ///< an operator gives up this many more servers, which are replaced
  std::uint32_t count;
};
struct Answered {  ///< the answer to the effect Request
  std::string request_id;
  RequestOutcome outcome;
};
struct Listed {  ///< the answer to the effect List
  Answer<std::vector<ServerStatus>> answer;
  std::uint32_t wanted_back = 0;  ///< see Provider::wanted_back
};
struct ReleaseAnswered {  ///< the answer to the effect Release
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
struct Leaving {  ///< the member will leave at a boundary, after a notice or an order
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
struct List {};  ///< to be answered by Listed; there is no second one before that
struct Drain {   ///< tell the member to leave at a boundary
  MemberId member;
};
struct StopJob {  ///< stop the job, with a checkpoint
  std::string reason;
};
/// An event for records and messages.
struct Note {
  std::string kind;  ///< server_granted, server_refused, server_joined, server_lost, server_ended,
                     ///< server_adopted, server_given_up, servers_chosen, request_given_up,
                     ///< worker_unnamed, release_failed, list_failed, offer_stopped,
                     ///< offers_exhausted, no_server_starts, budget, back_to_spot,
                     ///< back_to_composition, other_job
  std::string detail;
  std::string server;          ///< empty = none in particular
  std::optional<double> cost;  ///< total cost, if a server or request has ended
  bool for_evaluator = false;  ///< server_granted, server_adopted: its offer is for evaluators
};
}  // namespace policy_effect

using PolicyEffect =
    std::variant<policy_effect::Request, policy_effect::Release, policy_effect::List,
                 policy_effect::Drain, policy_effect::StopJob, policy_effect::Note>;

/// The policy's view, for `mayfly status`, records and tests.
struct PolicyStatus {
  std::uint32_t target = 0;
  std::uint32_t staying = 0;  ///< workers and servers that count for the target
  std::uint32_t coming = 0;   ///< requested for the target, not yet answered
  std::uint32_t billing = 0;  ///< servers that are not known to be gone
  double spent = 0;
  double per_hour = 0;
  /// No further worker can join: every offer for workers is stopped by failed starts or wrong
  /// settings, and neither an open request nor a server may still bring one. Or the job cannot
  /// begin, because the provider does not list its servers.
  bool no_worker_comes = false;
};

/// The servers that compute, for decisions about how many there should be.
struct Composition {
  struct Part {
    Offer offer;
    double price_per_hour = 0;
    double speed = 0;          ///< in the unit of policy_event::Measured, once a speed was measured
    bool is_measured = false;  ///< `speed` was measured, on this machine type
    Duration age{};            ///< since it was granted
  };
  std::vector<Part> working;  ///< without evaluators and irreplaceable servers
  std::optional<Part> next;   ///< the server to request next, if the budget allows one
  bool is_settled = false;    ///< all servers of the target work; none starts or leaves
};

}  // namespace mayfly::cloud_hooks
