#pragma once

// Where each of the five providers works in a test: the real provider against processes, a user's
// program, Slurm's programs or the fake cloud, with a way to know and to change the truth behind
// it.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "cloud_hooks/core/provider.hpp"

namespace mayfly::cloud_hooks {

class ProviderSite {
 public:
  virtual ~ProviderSite() = default;

  /// A provider for the job of that label, as a new process of the job would make it.
  virtual std::unique_ptr<Provider> provider(const std::string& job) = 0;
  /// Something that can be asked for here.
  [[nodiscard]] virtual Offer offer() const = 0;
  /// How many servers there really are, of all jobs.
  virtual std::size_t alive() = 0;
  /// Whether the provider says since when a server is billed.
  [[nodiscard]] virtual bool knows_uptime() const { return true; }
  /// The server ends without a word, as when a cloud takes it back.
  virtual void vanish(const std::string& id) = 0;

  /// The next request for servers is carried out, and its answer lost. False: none can be lost.
  virtual bool lose_next_answer() { return false; }
  /// Requests for servers are refused with that kind from now on. False: nobody refuses here.
  virtual bool refuse(ProviderErrorKind /*kind*/) { return false; }
};

/// "local", "exec", "slurm", "gce" and "ec2".
[[nodiscard]] const std::vector<std::string>& provider_site_names();
/// With nothing running yet.
[[nodiscard]] std::unique_ptr<ProviderSite> make_provider_site(const std::string& name);

}  // namespace mayfly::cloud_hooks
