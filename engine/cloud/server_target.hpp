#pragma once

// How many servers a job wants from its provider.

#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "base/ids.hpp"
#include "elastic/net/coordinator_server.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// Any thread.
class ServerTarget {
 public:
  /// `workers`: the number that is wanted at first.
  ServerTarget(const JobConfig& config, std::uint32_t workers);

  /// Changes the number of workers that is wanted. `after`: the number that follows, if an exchange
  /// of servers begins.
  void set_workers(std::uint32_t workers, std::optional<std::uint32_t> after = {});
  /// To be called for each member that is a parameter server of the running job.
  void saw_parameter_server(MemberId member);
  /// Lowers the target when a parameter server is lost, which cannot be replaced. `members`: all
  /// members of the job, from which a lost one disappears before the next view. `left`: the number
  /// of servers by the job's views. Returns whether the target has changed.
  [[nodiscard]] bool follow_losses(const std::vector<elastic::MemberStatus>& members,
                                   std::uint32_t left);

  [[nodiscard]] std::uint32_t workers() const;
  /// The number of workers for a later coordinator of the job, which knows of no exchange.
  [[nodiscard]] std::uint32_t lasting_workers() const;
  /// Workers, and parameter servers with processes of their own.
  [[nodiscard]] std::uint32_t for_training() const;
  /// The same, and evaluators that use the workers' offers.
  [[nodiscard]] std::uint32_t all() const;

 private:
  const std::uint32_t servers_at_first_;
  const std::uint32_t evaluators_;
  mutable std::mutex mutex_;
  std::uint32_t workers_;
  std::optional<std::uint32_t> workers_after_;  // the exchange that is under way
  std::uint32_t servers_;                       // in addition to workers
  std::set<MemberId> servers_seen_;             // lost ones, too
};

}  // namespace mayfly::engine
