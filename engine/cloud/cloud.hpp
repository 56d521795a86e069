#pragma once

// The servers of a coordinator's job: requests servers from a provider, replaces lost ones, and
// releases those that are no longer needed. cloud_hooks/core/replacement_policy makes the
// decisions, on threads of cloud_hooks/provider_driver; training never waits for them.

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "cloud_hooks/bundle/bundle_server.hpp"
#include "cloud_hooks/core/replacement_events.hpp"
#include "cloud_hooks/provider_driver.hpp"
#include "engine/cloud/cloud_events.hpp"
#include "engine/cloud/machine_parts.hpp"
#include "engine/cloud/replanning.hpp"
#include "engine/cloud/server_target.hpp"
#include "engine/cloud/worker_supply.hpp"
#include "engine/processes/coordinator_process.hpp"

namespace mayfly::engine {

class Cloud final : public cloud_hooks::DriverListener {
 public:
  /// Null if the job has no cloud provider. kInvalidInput if its settings do not fit together.
  /// Servers are requested only while `process` is in charge of the job, because a job with
  /// standbys has several coordinators. `process` must outlive the Cloud.
  static Result<std::unique_ptr<Cloud>> start(CoordinatorProcess& process);
  ~Cloud() override;

  /// Passes the present members to the policy. Call it whenever the coordinator has news, and
  /// several times a second in any case, always from one thread.
  void look();
  /// Sets the number of workers and returns a sentence for the operator. kRefused above the limit,
  /// or if this coordinator is not in charge. `after`: as in ServerTarget. Any thread.
  [[nodiscard]] Result<std::string> scale(std::uint32_t workers,
                                          std::optional<std::uint32_t> after = {});
  /// Gives up that many servers, those whose loss costs the job least, and replaces them like lost
  /// ones. Returns a sentence for the operator. kRefused if this coordinator is not in charge. Any
  /// thread.
  [[nodiscard]] Result<std::string> give_up(std::uint32_t servers);
  /// The job has ended. Its members still report and write a last checkpoint; none of them is
  /// replaced.
  void close();
  /// Call it instead of look() when the members have left and evaluators still measure the last
  /// checkpoints: the policy keeps only the servers of evaluators.
  void keep_evaluators();
  /// All members have left: releases every server and waits up to a minute until none is billed.
  /// No thread calls the provider afterwards, or uses the server of `process`.
  void finish();

  void on_fact(const cloud_hooks::CloudFact& fact) override;
  void remember(const cloud_hooks::PolicyStatus& status) override;
  void drain(MemberId member) override;
  void stop_job(const std::string& reason) override;

 private:
  explicit Cloud(CoordinatorProcess& process);
  Result<void> prepare();
  Result<std::string> make_startup_text();
  void worker_failed(const std::string& server, const std::string& output);
  [[nodiscard]] bool may_release_after_end() const;
  void take_charge();
  void end_if_hopeless(const cloud_hooks::PolicyStatus& status);
  void lose_charge();
  void end_driver();
  void add_evaluators(std::vector<cloud_hooks::WorkerSeen>& seen);
  [[nodiscard]] bool is_server(const elastic::MemberStatus& member, bool has_begun) const;
  void follow_losses(const std::vector<elastic::MemberStatus>& members);
  void replan(const elastic::JobStatus& status);

  CoordinatorProcess& process_;
  MachineParts parts_;
  ServerTarget target_;
  std::string coordinators_;  // for workers
  std::string startup_text_;
  std::string label_;
  CloudEvents events_;
  WorkerSupply supply_;
  std::mutex file_mutex_;  // for the file that remember() writes
  std::vector<std::unique_ptr<cloud_hooks::Provider>> providers_;
  std::unique_ptr<cloud_hooks::BundleServer> bundle_;
  std::optional<Instant> not_in_charge_since_;
  std::optional<Replanning> replanning_;  // of look(); not before prepare()
  std::mutex driver_mutex_;  // guards the pointer; the thread of look() also uses its object
  std::unique_ptr<cloud_hooks::ProviderDriver> driver_;  // destroyed before its dependencies
};

}  // namespace mayfly::engine
