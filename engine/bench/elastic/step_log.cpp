#include "engine/bench/elastic/step_log.hpp"

#include <algorithm>

#include "engine/bench/statistics.hpp"

namespace mayfly::engine {

double undisturbed_ms(const std::vector<LoggedStep>& steps, std::uint32_t members) {
  std::vector<double> times;
  for (std::size_t i = 2; i < steps.size(); ++i) {
    const bool settled = steps[i].view == steps[i - 1].view && steps[i].view == steps[i - 2].view;
    if (settled && steps[i].members == members && steps[i].ms > 0) {
      times.push_back(steps[i].ms);
    }
  }
  return median(times);
}

std::optional<LoggedStep> last_before(const std::vector<LoggedStep>& steps, Instant moment) {
  const auto later = std::find_if(steps.rbegin(), steps.rend(), [moment](const LoggedStep& step) {
    return step.heard <= moment;
  });
  return later == steps.rend() ? std::nullopt : std::optional(*later);
}

void StepLog::on_step(const StepMetric& metric, std::uint64_t /*total_steps*/) {
  const Instant now = monotonic_now();
  const bool timed = metric.images_per_second > 0;
  const double ms =
      timed ? 1e3 * static_cast<double>(metric.samples) / metric.images_per_second : 0;
  const std::lock_guard lock(mutex_);
  steps_.push_back(
      {metric.step, metric.view, metric.members, metric.samples, ms, now, metric.digest});
}

void StepLog::on_event(const std::string& line) {
  const Instant now = monotonic_now();
  const std::lock_guard lock(mutex_);
  lines_.emplace_back(now, line);
}

void StepLog::on_summary(const Summary& /*summary*/) {}

std::vector<LoggedStep> StepLog::steps() const {
  const std::lock_guard lock(mutex_);
  return steps_;
}

std::uint64_t StepLog::last_step() const {
  const std::lock_guard lock(mutex_);
  return steps_.empty() ? 0 : steps_.back().step;
}

std::vector<std::pair<Instant, std::string>> StepLog::lines(const std::string& word) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<Instant, std::string>> found;
  std::copy_if(lines_.begin(), lines_.end(), std::back_inserter(found),
               [&word](const auto& line) { return line.second.starts_with(word); });
  return found;
}

}  // namespace mayfly::engine
