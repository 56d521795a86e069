#include "engine/run/job_cost.hpp"

#include <algorithm>

namespace mayfly::engine {

JobCost::JobCost(const JobConfig& config, const RunHistory& history, double t) {
  if (config.price_per_hour > 0 && config.cloud_provider.empty()) {
    const Spending last = history.spending.value_or(Spending{});
    const double away = std::max(0.0, t - history.spending_t);
    bill_.emplace(config.price_per_hour, last.spent + last.per_hour * away / kSecondsPerHour);
  }
}

std::optional<Spending> JobCost::on_note(Instant when, const std::string& kind,
                                         std::uint64_t member) {
  const std::lock_guard lock(mutex_);
  const bool changes = bill_ && bill_->on_note(when, kind, member);
  return changes ? std::optional(bill_->at(when)) : std::nullopt;
}

std::optional<Spending> JobCost::of_workers(Instant when) const {
  const std::lock_guard lock(mutex_);
  return bill_ ? std::optional(bill_->at(when)) : std::nullopt;
}

std::optional<Spending> JobCost::due(Instant now) {
  const std::lock_guard lock(mutex_);
  return bill_ ? bill_->due(now) : std::nullopt;
}

std::optional<Spending> JobCost::close(Instant now) {
  const std::lock_guard lock(mutex_);
  if (!bill_) {
    return std::nullopt;
  }
  spending_ = Spending{bill_->at(now).spent, 0, 0};
  bill_.reset();
  return spending_;
}

void JobCost::of_servers(const Spending& spending) {
  const std::lock_guard lock(mutex_);
  spending_ = spending;
}

std::optional<Spending> JobCost::at(Instant now) const {
  const std::lock_guard lock(mutex_);
  return bill_ ? bill_->at(now) : spending_;
}

}  // namespace mayfly::engine
