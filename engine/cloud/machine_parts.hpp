#pragma once

// The role of a provider's machine in its job: it trains, is or carries a parameter server, or
// measures checkpoints. A machine asks for its role when it starts. Any thread.

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

  /// The settings that assign a machine its role, as TOML; the same ones if it asks again before
  /// the job's first view. `wanted`: how many machines are to train or to be parameter servers.
  /// Waits up to five seconds for granted() if the machine's offer decides.
  [[nodiscard]] std::string settings_of(const std::string& machine,
                                        const elastic::JobStatus& status, std::uint32_t wanted);
  /// Members that are servers keep their places, which a coordinator before this one may have
  /// assigned: it may have ended before the job's first view. settings_of() does the same.
  void note_servers(const elastic::JobStatus& status);
  /// An evaluator on this machine is connected.
  void evaluates(const std::string& machine);
  /// Whether the machine has the place of a parameter server; false for one that did not ask yet.
  [[nodiscard]] bool is_server(const std::string& machine) const;
  /// The provider has granted this machine.
  void granted(const std::string& machine, bool for_evaluator);
  /// The machine is no server of the job any more. Its place becomes free for another one.
  void gone(const std::string& machine);

 private:
  [[nodiscard]] bool is_to_evaluate(const std::string& machine, const elastic::JobStatus& status,
                                    std::uint32_t wanted);
  void note_servers_locked(const elastic::JobStatus& status);

  const JobConfig& config_;
  std::condition_variable granted_changed_;
  mutable std::mutex mutex_;
  // Guarded by mutex_, machines by their names:
  ServerPlaces servers_;
  ServerPlaces evaluators_;
  std::set<std::string> ended_;
  std::map<std::string, bool> granted_;      // whether for an evaluator
  std::set<std::string> training_machines_;  // got the role of a worker or a parameter server
};

}  // namespace mayfly::engine
