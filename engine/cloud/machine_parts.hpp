#pragma once

// Which part a machine of a provider has in its job: it trains, is a parameter server, or carries
// one, or measures checkpoints. It asks when it starts. Any thread.

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "elastic/net/coordinator_server.hpp"
#include "engine/config/config.hpp"
#include "engine/server_roles/server_places.hpp"

namespace mayfly::engine {

class MachineParts {
 public:
  /// `config` outlives it.
  explicit MachineParts(const JobConfig& config);

  /// The settings that tell a machine its part, as TOML; the same ones whenever it asks again
  /// before the job's first view. `wanted`: how many are to train or to be parameter servers. Waits
  /// up to five seconds for granted() if the machine's offer decides.
  [[nodiscard]] std::string settings_of(const std::string& machine,
                                        const elastic::JobStatus& status, std::uint32_t wanted);
  /// An evaluator on this machine is connected.
  void evaluates(const std::string& machine);
  /// Its place is one of a parameter server; true only for those that were told so.
  [[nodiscard]] bool is_server(const std::string& machine) const;
  /// The provider has granted it.
  void granted(const std::string& machine, bool for_evaluator);
  /// It is no server of the job any more: its place is for another one.
  void gone(const std::string& machine);

 private:
  [[nodiscard]] bool is_to_evaluate(const std::string& machine, const elastic::JobStatus& status,
                                    std::uint32_t wanted);

  const JobConfig& config_;
  std::condition_variable granted_changed_;
  mutable std::mutex mutex_;
  // Guarded by mutex_, machines by their names:
  ServerPlaces servers_;
  ServerPlaces evaluators_;
  std::set<std::string> ended_;
  std::map<std::string, bool> granted_;  // whether for an evaluator
  std::set<std::string> told_to_work_;
};

}  // namespace mayfly::engine
