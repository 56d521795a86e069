#include "cli/progress_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace mayfly::cli {
namespace {

constexpr Duration kTerminalPeriod = milliseconds(100);
constexpr Duration kPlainPeriodMin = seconds(1);
constexpr Duration kPlainPeriodMax = seconds(10);
constexpr std::uint64_t kPlainParts = 20;
constexpr double kSmoothing = 0.05;      // weight of the newest step's rate
constexpr double kDataWaitShown = 0.05;  // least share of the time that is shown

std::string time_left(double left) {
  if (!std::isfinite(left) || left < 0 || left > 360000) {
    return "?";
  }
  const auto whole = static_cast<std::uint64_t>(std::llround(left));
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

ProgressLine::ProgressLine(std::ostream& results, std::ostream& progress, Options options,
                           std::function<Instant()> now)
    : results_(results), progress_(progress), options_(options), now_(std::move(now)) {}

ProgressLine::~ProgressLine() {
  erase();
}

void ProgressLine::on_step(const engine::StepRecord& metric, std::uint64_t total_steps) {
  if (options_.quiet) {
    return;
  }
  rate_ = rate_ == 0 ? metric.images_per_second
                     : rate_ + kSmoothing * (metric.images_per_second - rate_);
  const double share = metric.data_wait_ms / 1000 * metric.images_per_second /
                       static_cast<double>(std::max<std::uint64_t>(metric.samples, 1));
  data_wait_ += kSmoothing * (share - data_wait_);
  const Instant now = now_();
  if (!is_due(now, metric.step, total_steps)) {
    return;
  }
  const std::string line = line_of(metric, total_steps);
  if (options_.is_terminal) {
    erase();
    progress_ << line << std::flush;
    shown_ = line;
  } else {
    progress_ << line << "\n" << std::flush;
  }
  printed_once_ = true;
  last_printed_ = now;
  last_step_ = metric.step;
}

bool ProgressLine::is_due(Instant now, std::uint64_t step, std::uint64_t total_steps) const {
  if (!printed_once_ || step == total_steps) {
    return true;
  }
  const Duration since = now - last_printed_;
  if (options_.is_terminal) {
    return since >= kTerminalPeriod;
  }
  const std::uint64_t part = std::max<std::uint64_t>(total_steps / kPlainParts, 1);
  const bool in_next_part = step / part > last_step_ / part;
  return since >= kPlainPeriodMax || (in_next_part && since >= kPlainPeriodMin);
}

std::string ProgressLine::line_of(const engine::StepRecord& metric,
                                  std::uint64_t total_steps) const {
  const double images_left = static_cast<double>(total_steps - std::min(metric.step, total_steps)) *
                             static_cast<double>(metric.samples);
  std::string line =
      fmt::format("step {}/{}  epoch {:.2f}  loss {:.4f}  {:.0f} images/s  {} worker{}  {} left",
                  metric.step, total_steps, metric.epoch, metric.loss, rate_, metric.members,
                  metric.members == 1 ? "" : "s", time_left(images_left / rate_));
  if (data_wait_ >= kDataWaitShown) {
    line += fmt::format("  {:.0f} % waiting for data", 100 * data_wait_);
  }
  return line;
}

void ProgressLine::erase() {
  if (!shown_.empty()) {
    progress_ << "\r\x1b[K" << std::flush;  // to the line's start, then clear it
    shown_.clear();
  }
}

void ProgressLine::on_event(const std::string& line) {
  if (options_.quiet) {
    return;
  }
  const std::string below = shown_;
  erase();
  progress_ << line << "\n" << below << std::flush;
  shown_ = below;
}

void ProgressLine::on_summary(const engine::Summary& summary) {
  erase();
  results_ << engine::to_text(summary) << std::flush;
}

void ProgressLine::on_nothing_left(const std::string& line) {
  results_ << line << "\n" << std::flush;
}

}  // namespace mayfly::cli
