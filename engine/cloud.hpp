#pragma once

// A coordinator's servers: asks a provider for workers, replaces those that are lost, gives back
// what is no longer wanted. Decisions are made in cloud_hooks/core/replacement_policy, on threads
// of cloud_hooks/provider_driver; the job waits for none of it.

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cloud_hooks/core/replacement_policy.hpp"
#include "cloud_hooks/provider_driver.hpp"
#include "engine/coordinator_process.hpp"

namespace mayfly::engine {

class Cloud final : public cloud_hooks::DriverListener {
 public:
  /// Null if the job has no cloud provider. kInvalidInput if its settings do not fit together.
  /// `process` must outlive it.
  static Result<std::unique_ptr<Cloud>> start(CoordinatorProcess& process);
  ~Cloud() override;

  /// Hands over who is a member now; at least every few milliseconds, always from one thread.
  void look();
  /// Any thread. A sentence for the operator.
  [[nodiscard]] Result<std::string> scale(std::uint32_t workers);
  /// The job is over: every server is released, and this waits a minute for that to be seen.
  void finish();

  void on_fact(const cloud_hooks::CloudFact& fact) override;
  void drain(MemberId member) override;
  void stop_job(const std::string& reason) override;

 private:
  explicit Cloud(CoordinatorProcess& process) : process_(process) {}
  void remember(const cloud_hooks::PolicyStatus& status);

  CoordinatorProcess& process_;
  std::uint32_t workers_max_ = 0;
  std::string label_;
  std::mutex memory_mutex_;  // guards the file that remember() writes
  std::vector<std::unique_ptr<cloud_hooks::Provider>> providers_;
  std::unique_ptr<cloud_hooks::ProviderDriver> driver_;  // destroyed before what it uses
};

/// What the policy is told, from the settings and what an earlier process of this job left in
/// RUN_DIR/cloud.json. kInvalidInput if settings do not fit together.
[[nodiscard]] Result<cloud_hooks::ReplacementOptions> replacement_options(
    const JobConfig& config, const cloud_hooks::Capabilities& provider);

/// What a new server runs. `endpoint` is the coordinator's; without `with_token`, the job's secret
/// is left out, for people to read. kInvalidInput if the settings do not say enough.
[[nodiscard]] Result<std::string> startup_text(const JobConfig& config, const std::string& endpoint,
                                               bool with_token);

/// --cloud-dry-run: prints what would be asked for first; returns the exit code.
int show_cloud_plan(const JobConfig& config);

/// Where cost and rate are remembered between processes of one job.
struct CloudMemory {
  double spent = 0;
  double per_hour = 0;
  double at = 0;  ///< seconds since 1970
};
[[nodiscard]] std::string cloud_memory_path(const std::string& run_dir);
[[nodiscard]] std::string print_cloud_memory(const CloudMemory& memory);
/// Nothing if there is no such file, or it is none of ours.
[[nodiscard]] std::optional<CloudMemory> read_cloud_memory(const std::string& run_dir);

}  // namespace mayfly::engine
