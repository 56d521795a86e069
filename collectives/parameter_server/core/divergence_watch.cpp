#include "collectives/parameter_server/core/divergence_watch.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

namespace mayfly::parameter_server {
namespace {

constexpr std::size_t kMeansMax = 16;
constexpr std::size_t kMeansMin = 4;  // before that an untrained network's loss is the measure
constexpr std::uint32_t kUsualWindows = 3;

/// In how many ways the k largest of `others` + k means can be chosen. All are equally likely if
/// training does not diverge.
double ways(std::size_t others, std::uint32_t k) {
  double count = 1;
  for (std::uint32_t i = 1; i <= k; ++i) {
    count *= static_cast<double>(others + i) / i;
  }
  return count;
}

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

/// The median of the last means; until there are enough of them, the loss of an untrained network.
double DivergenceWatch::usual() const {
  if (means_.size() < kMeansMin) {
    return options_.uniform_loss;
  }
  std::vector<double> sorted(means_.begin(), means_.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

/// The largest of the last means; 0 before there are any.
double DivergenceWatch::largest() const {
  return means_.empty() ? 0 : *std::max_element(means_.begin(), means_.end());
}

/// In a job that does not diverge, with independent noise, the next k means are all above the n
/// before them with a probability of one in C(n + k, k): one in 969 for 3 and 16. If there are
/// fewer earlier means, more high ones are needed.
std::uint32_t DivergenceWatch::windows_needed() const {
  const std::size_t others = std::max(means_.size(), kMeansMin);
  const double wanted = ways(kMeansMax, std::min(options_.windows, kUsualWindows));
  std::uint32_t needed = options_.windows;
  while (needed < 2 * options_.windows && ways(others, needed) < wanted) {
    ++needed;
  }
  return needed;
}

/// A small loss may double by chance, so a high mean is at least half the loss of an untrained
/// network. And if the loss was as high shortly before, without harm, it is only noisy: such a mean
/// raises no doubt and ends one.
void DivergenceWatch::judge(double mean) {
  const double median = usual();
  const double least = options_.uniform_loss / 2;
  const double before = largest();
  const double high = std::max({options_.factor * median, least, before});
  const double low = std::max({(1 + options_.factor) / 2 * median, 0.75 * least, before});
  if (median > 0 && mean > high) {
    ++streak_;
  } else if (streak_ == 0 || mean < low) {
    streak_ = 0;
    learn(mean);
  }
  if (streak_ >= windows_needed()) {
    diverged_ = true;
    reason_ = "the loss is " + shown(mean) + ", after a median of " + shown(median);
  }
}

}  // namespace mayfly::parameter_server
