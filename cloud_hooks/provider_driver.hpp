#pragma once

// Runs a ReplacementPolicy with a provider: one thread that decides, several that talk to the
// provider - for requests, for releases and for looking, so that a slow answer to one keeps no
// other waiting - and two for records, as a disk may be slow, too. Training waits for none of
// them: what it hands over is a snapshot, of which the last one counts.

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
  std::string server;  ///< empty = nobody knows where it runs
  bool leaves = false;
  double speed = 0;               ///< 0 = not measured yet
  bool is_irreplaceable = false;  ///< see policy_event::Irreplaceable
};

/// Something for records and people.
struct CloudFact {
  std::string kind;  ///< those of policy_effect::Tell, and server_requested, server_released, cost
  std::string detail;
  std::string server;        ///< empty = none in particular
  std::string request_id;    ///< of server_requested
  std::optional<double> ms;  ///< server_requested: from when the first loss that it replaces was
                             ///< heard of until the provider was called;
                             ///< server_released: the provider's answer took so long
  std::optional<double> decided_ms;  ///< server_requested: the part of it until it was decided on
  std::optional<double> cost;        ///< of server_ended: of that server
  std::optional<PolicyStatus> all;   ///< of cost, and of all others at that moment
};

/// What the driver wants done. Called on its threads: the first two on one each, which may be kept
/// waiting; the others on the one that decides, which must not.
class DriverListener {
 public:
  virtual ~DriverListener() = default;
  virtual void on_fact(const CloudFact& fact) = 0;
  /// What all servers cost, to be known by who goes on with the job after us. Of several changes in
  /// a row only the last may be told.
  virtual void remember(const PolicyStatus& status) = 0;
  virtual void drain(MemberId member) = 0;
  virtual void stop_job(const std::string& reason) = 0;
};

/// Providers of the same kind and job, one for each thread; they may be one object if that may be
/// called from several threads at once.
struct DriverProviders {
  /// A request may take minutes, until a cloud has made the server or has found that it cannot; so
  /// many may be under way.
  std::vector<Provider*> requests;
  Provider& releases;
  Provider& looks;
};

class ProviderDriver {
 public:
  /// Starts at once. The providers and the listener must outlive this.
  ProviderDriver(ReplacementOptions options, const DriverProviders& providers,
                 DriverListener& listener);
  /// Ends its threads; waits for calls to the provider that are under way.
  ~ProviderDriver();
  ProviderDriver(const ProviderDriver&) = delete;
  ProviderDriver& operator=(const ProviderDriver&) = delete;

  // Any thread, without waiting:
  /// All members now; what is not among them any more is gone. `heard`: when it was heard of what
  /// is new.
  void workers(std::vector<WorkerSeen> seen, Instant heard);
  void scale(std::uint32_t target);
  [[nodiscard]] PolicyStatus status() const;

  /// The job has ended, and its last members finish what they do: whatever is gone from now on is
  /// not replaced.
  void close();
  /// They are gone: releases everything and waits until nothing bills any more, at most so long.
  /// False if that could not be confirmed. All facts until then have been told.
  bool finish(Duration timeout);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mayfly::cloud_hooks
