#include "collectives/parameter_server/core/divergence_watch.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

namespace mayfly::parameter_server {
namespace {

constexpr std::size_t kMeansMax = 16;
constexpr std::size_t kMeansMin = 4;  // before that a network that knows nothing is the measure

std::string shown(double number) {
  char text[32];
  const auto [end, failure] =
      std::to_chars(text, text + sizeof text, number, std::chars_format::general, 4);
  return failure == std::errc{} ? std::string(text, end) : std::string("?");
}

}  // namespace

void DivergenceWatch::add(double loss, std::uint32_t microbatches, std::uint32_t slices,
                          bool is_judged) {
  if (diverged_ || (!is_judged && !std::isfinite(loss))) {
    return;
  }
  if (!std::isfinite(loss)) {
    diverged_ = true;
    streak_ = options_.windows;
    reason_ = "a loss or gradient is not finite";
    return;
  }
  sum_ += loss;
  microbatches_ += microbatches;
  slices_ += slices;
  if (slices_ < options_.slices || microbatches_ == 0) {
    return;
  }
  const double mean = sum_ / microbatches_;
  sum_ = 0;
  microbatches_ = 0;
  slices_ = 0;
  if (is_judged) {
    judge(mean);
  } else {
    streak_ = 0;
    learn(mean);
  }
}

void DivergenceWatch::learn(double mean) {
  means_.push_back(mean);
  if (means_.size() > kMeansMax) {
    means_.pop_front();
  }
}

/// Of the last means; before there are some, what a network has that knows nothing.
double DivergenceWatch::usual() const {
  if (means_.size() < kMeansMin) {
    return options_.uniform_loss;
  }
  std::vector<double> sorted(means_.begin(), means_.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

/// A small loss may double by chance: what speaks for divergence is half of what a network has that
/// knows nothing, at least.
void DivergenceWatch::judge(double mean) {
  const double median = usual();
  const double least = options_.uniform_loss / 2;
  const double high = std::max(options_.factor * median, least);
  const double low = std::max((1 + options_.factor) / 2 * median, 0.75 * least);
  if (median > 0 && mean > high) {
    ++streak_;
  } else if (streak_ == 0 || mean < low) {
    streak_ = 0;
    learn(mean);
  }
  if (streak_ >= options_.windows) {
    diverged_ = true;
    reason_ = "the loss is " + shown(mean) + ", after a median of " + shown(median);
  }
}

}  // namespace mayfly::parameter_server
