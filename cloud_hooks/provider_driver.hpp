#pragma once

// Runs a ReplacementPolicy with a provider. One thread decides. Several threads call the provider,
// separately for requests, releases and lists, so that a slow answer delays no other call. Two more
// write records, because a disk may be slow, too. Training waits for none of them: it passes a
// snapshot of the members, and only the newest snapshot is used.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cloud_hooks/core/replacement_policy.hpp"

namespace mayfly::cloud_hooks {

/// A worker of the job, as its coordinator sees it.
struct WorkerSeen {
  MemberId member{};
  std::string server;  ///< empty = the worker did not name its server
  bool leaves = false;
  double speed = 0;               ///< 0 = not measured yet
  bool is_irreplaceable = false;  ///< see policy_event::Irreplaceable
};

/// An event for records and messages.
struct CloudFact {
  std::string kind;  ///< those of policy_effect::Note, and server_requested, server_released, cost
  std::string detail;
  std::string server;        ///< empty = none in particular
  std::string request_id;    ///< of server_requested
  std::optional<double> ms;  ///< server_requested: time from the report of the first loss that it
                             ///< replaces until the provider was called;
                             ///< server_released: time until the provider's answer
  std::optional<double> decided_ms;  ///< server_requested: the part of `ms` until the decision
  std::optional<double> cost;        ///< server_ended: total cost of that server
  bool for_evaluator = false;        ///< server_granted, server_adopted: it is for evaluators
  std::optional<PolicyStatus> all;   ///< the policy's status at that moment
};

/// Receives the driver's decisions, on the driver's threads. The first two functions have a thread
/// each and may block; the others are called on the thread that decides and must not block.
class DriverListener {
 public:
  virtual ~DriverListener() = default;
  virtual void on_fact(const CloudFact& fact) = 0;
  /// The cost of all servers, to be stored for a later process of this job; also after scale(). If
  /// it changes several times in a row, only the last value may be passed.
  virtual void remember(const PolicyStatus& status) = 0;
  virtual void drain(MemberId member) = 0;
  virtual void stop_job(const std::string& reason) = 0;
};

/// Providers of the same kind and job, one for each thread. They may be one object if it can be
/// called from several threads at once.
struct DriverProviders {
  /// One for each request that may be open at the same time. A request may take minutes, until the
  /// cloud has created the server or found that it cannot.
  std::vector<Provider*> requests;
  std::vector<Provider*> releases;  ///< likewise; some wait until the server is gone
  Provider& lists;
};

class ProviderDriver {
 public:
  /// Starts the threads. The providers and the listener must outlive this.
  ProviderDriver(ReplacementOptions options, const DriverProviders& providers,
                 DriverListener& listener);
  /// Ends the threads; waits for open calls to the provider.
  ~ProviderDriver();
  ProviderDriver(const ProviderDriver&) = delete;
  ProviderDriver& operator=(const ProviderDriver&) = delete;

  // Any thread, without waiting:
  /// The current members; earlier ones that are missing are gone. `learned`: the time at which the
  /// coordinator learned of the change.
  void workers(std::vector<WorkerSeen> seen, Instant learned);
  void scale(std::uint32_t target);
  void give_up(std::uint32_t servers);
  [[nodiscard]] PolicyStatus status() const;
  /// The servers as they were soon after the previous call; nothing at the first one.
  [[nodiscard]] std::optional<Composition> composition();

  /// The job has ended and its last members finish. Workers that leave from now on are not
  /// replaced.
  void close();
  /// All members have left: begins no further request, releases every server, and waits until none
  /// is billed any more, at most for the given time after the provider has answered the last
  /// request and the last of the first releases. False if that could not be confirmed. All events
  /// until then have been passed to the listener.
  bool finish(Duration timeout);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mayfly::cloud_hooks
