#include "elastic/core/speed_meter.hpp"

#include <algorithm>
#include <array>

#include "base/check.hpp"

namespace mayfly::elastic {
namespace {

constexpr std::size_t kSamples = 5;
constexpr std::size_t kSamplesNeeded = 3;

}  // namespace

void SpeedMeter::add(Instant now, float microbatch_ms, std::uint32_t microbatches,
                     Duration sample) {
  if (!(microbatch_ms > 0)) {
    return;
  }
  ENSURE(sample > Duration::zero(), "a sample is long beside one report");
  if (open_.microbatches == 0) {
    opened_ = now;
  }
  const std::uint32_t weight = std::max<std::uint32_t>(1, microbatches);
  open_.total_ms += static_cast<double>(microbatch_ms) * weight;
  open_.microbatches += weight;
  if (now - opened_ < sample) {
    return;
  }
  samples_.push_back(open_);
  open_ = {};
  if (samples_.size() > kSamples) {
    samples_.pop_front();
  }
}

float SpeedMeter::settled_ms() const {
  if (samples_.size() < kSamplesNeeded) {
    return 0;
  }
  std::array<float, kSamples> means{};
  const auto end = std::ranges::transform(samples_, means.begin(), &Sample::mean).out;
  const auto middle = means.begin() + (end - means.begin() - 1) / 2;
  std::nth_element(means.begin(), middle, end);
  ENSURE(*middle > 0, "samples are made of reports that have a time");
  return *middle;
}

float SpeedMeter::best_ms() const {
  if (const float settled = settled_ms(); settled > 0) {
    return settled;
  }
  Sample all = open_;
  for (const Sample& sample : samples_) {
    all.total_ms += sample.total_ms;
    all.microbatches += sample.microbatches;
  }
  return all.microbatches == 0 ? 0 : all.mean();
}

}  // namespace mayfly::elastic
