#include "benchmarks/elastic/step_log.hpp"

#include <algorithm>

#include "base/statistics.hpp"

namespace mayfly::bench {

namespace {

std::vector<LoggedStep> undisturbed(const std::vector<LoggedStep>& steps, std::uint32_t members) {
  std::vector<LoggedStep> found;
  for (std::size_t i = 2; i < steps.size(); ++i) {
    const bool settled = steps[i].view == steps[i - 1].view && steps[i].view == steps[i - 2].view;
    if (settled && steps[i].members == members && steps[i].ms > 0) {
      found.push_back(steps[i]);
    }
  }
  return found;
}

double median_ms(const std::vector<LoggedStep>& steps) {
  std::vector<double> times;
  times.reserve(steps.size());
  for (const LoggedStep& step : steps) {
    times.push_back(step.ms);
  }
  return median(times);
}

}  // namespace

double undisturbed_ms(const std::vector<LoggedStep>& steps, std::uint32_t members) {
  return median_ms(undisturbed(steps, members));
}

double undisturbed_near_ms(const std::vector<LoggedStep>& steps, std::uint32_t members,
                           std::uint64_t step) {
  std::vector<LoggedStep> near = undisturbed(steps, members);
  const auto distance = [step](const LoggedStep& each) {
    return each.step > step ? each.step - step : step - each.step;
  };
  std::stable_sort(near.begin(), near.end(), [&distance](const auto& one, const auto& other) {
    return distance(one) < distance(other);
  });
  near.resize(std::min(near.size(), kNearest));
  return median_ms(near);
}

double undisturbed_late_ms(const std::vector<LoggedStep>& steps, std::uint32_t members,
                           double fraction) {
  std::vector<double> late;
  for (const LoggedStep& step : undisturbed(steps, members)) {
    late.push_back(step.ms - undisturbed_near_ms(steps, members, step.step));
  }
  return late.empty() ? 0 : percentile(late, fraction);
}

std::optional<LoggedStep> last_before(const std::vector<LoggedStep>& steps, Instant moment) {
  const auto later = std::find_if(steps.rbegin(), steps.rend(), [moment](const LoggedStep& step) {
    return step.heard <= moment;
  });
  return later == steps.rend() ? std::nullopt : std::optional(*later);
}

void StepLog::on_step(const engine::StepRecord& metric, std::uint64_t /*total_steps*/) {
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

void StepLog::on_summary(const engine::Summary& /*summary*/) {}

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

}  // namespace mayfly::bench
