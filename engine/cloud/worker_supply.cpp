#include "engine/cloud/worker_supply.hpp"

namespace mayfly::engine {

WorkerSupply::WorkerSupply(const JobConfig& config)
    : has_one_offer_(config.cloud_provider == "ssh" ||
                     (config.cloud_provider == "slurm" &&
                      config.cloud_offers.find(',') == std::string::npos)) {}

void WorkerSupply::on_fact(const cloud_hooks::CloudFact& fact) {
  const std::lock_guard lock(mutex_);
  if (fact.kind == "no_server_starts" || (has_one_offer_ && fact.kind == "offer_stopped")) {
    why_ = fact.detail;
  } else if (fact.kind == "server_joined") {
    why_.clear();
  }
}

void WorkerSupply::reopen() {
  const std::lock_guard lock(mutex_);
  why_.clear();
}

std::string WorkerSupply::why_ended() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

}  // namespace mayfly::engine
