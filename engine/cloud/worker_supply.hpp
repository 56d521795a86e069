#pragma once

// Whether further workers can start on servers of the job's provider, by the driver's events.

#include <mutex>
#include <string>

#include "cloud_hooks/provider_driver.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// Any thread.
class WorkerSupply {
 public:
  explicit WorkerSupply(const JobConfig& config);

  /// Handles an event of the driver. The supply ends when the only offer is stopped, or when the
  /// servers of all offers fail before their workers join. It continues when a worker joins.
  void on_fact(const cloud_hooks::CloudFact& fact);
  /// Every offer is used again, because the number of workers was changed.
  void reopen();
  /// The reason why no further worker can start; empty if one may. Workers may still join from
  /// servers that were granted before.
  [[nodiscard]] std::string why_ended() const;

 private:
  const bool has_one_offer_;  // which can be stopped for good
  mutable std::mutex mutex_;
  std::string why_;
};

}  // namespace mayfly::engine
