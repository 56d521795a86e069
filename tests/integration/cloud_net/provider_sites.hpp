#pragma once

// The environments in which tests run the five providers: processes, a user's program, Slurm's
// programs or the fake cloud. A test can inspect and change the servers behind the provider.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "cloud_hooks/core/provider.hpp"

namespace mayfly::cloud_hooks {

class ProviderSite {
 public:
  virtual ~ProviderSite() = default;

  /// A provider for the job with that label, as a new process of the job would make it.
  virtual std::unique_ptr<Provider> provider(const std::string& job) = 0;
  /// An offer that can be requested here.
  [[nodiscard]] virtual Offer offer() const = 0;
  /// The true number of servers of all jobs.
  virtual std::size_t alive() = 0;
  /// Whether the provider reports how long a server has been billed.
  [[nodiscard]] virtual bool knows_uptime() const { return true; }
  /// Ends the server without a notice, as when a cloud takes it back.
  virtual void vanish(const std::string& id) = 0;

  /// The next request for servers will be carried out and its answer lost. False if this
  /// environment cannot lose answers.
  virtual bool lose_next_answer() { return false; }
  /// Refuses requests for servers with that kind from now on. False if this environment cannot.
  virtual bool refuse(ProviderErrorKind /*kind*/) { return false; }
};

/// "local", "exec", "slurm", "gce" and "ec2".
[[nodiscard]] const std::vector<std::string>& provider_site_names();
/// The environment of a provider, without any servers.
[[nodiscard]] std::unique_ptr<ProviderSite> make_provider_site(const std::string& name);

}  // namespace mayfly::cloud_hooks
