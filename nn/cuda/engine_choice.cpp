#include "nn/cuda/engine_choice.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"

namespace mayfly::nn::cuda {
namespace {

constexpr double kNoise = 0.03;
// Of the largest element. Sums of up to a million products, rounded in another order, in fp32; two
// units in the last place of bfloat16, which covers fp16.
constexpr float kApartMaxFp32 = 1e-4F;
constexpr float kApartMax16 = 0x1p-6F;
// Sums of rows: what is rounded before or after it is summed differs in each row by 2^-12 at most.
constexpr float kApartMaxPerChannel = 0x1p-9F;

double median(std::vector<double> values) {
  ENSURE(!values.empty(), "an engine is timed at least once");
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// Nowhere further apart than so much of the largest of `first`.
bool near(std::span<const float> first, std::span<const float> other, float relative) {
  ENSURE(first.size() == other.size(), "the same elements are compared");
  float largest = 0;
  for (const float value : first) {
    largest = std::max(largest, std::abs(value));
  }
  for (std::size_t i = 0; i < first.size(); ++i) {
    // Said so that NaN is apart.
    if (!(std::abs(first[i] - other[i]) <= largest * relative)) {
      return false;
    }
  }
  return true;
}

}  // namespace

EngineEntry fastest_of(std::span<const EngineTiming> timings) {
  ENSURE(!timings.empty(), "some engine was timed");
  const double first = median(timings.front().microseconds);
  EngineEntry best{timings.front().engine, first, first};
  for (const EngineTiming& each : timings.subspan(1)) {
    const double time = median(each.microseconds);
    if (each.agrees && time < first * (1 - kNoise) && time < best.microseconds) {
      best = {each.engine, time, first};
    }
  }
  return best;
}

bool agree(const TrialResult& first, const TrialResult& other, Dtype dtype) {
  return near(first.elements, other.elements, bytes_of(dtype) == 2 ? kApartMax16 : kApartMaxFp32) &&
         near(first.per_channel, other.per_channel, kApartMaxPerChannel);
}

Result<std::vector<EngineTiming>> time_in_turns(EngineTrial& trial, std::uint32_t rounds,
                                                Dtype dtype) {
  ENSURE(rounds > 0, "an engine is timed at least once");
  const std::vector<EngineName> engines = trial.engines();
  ENSURE(!engines.empty(), "a convolution has an engine");
  const Result<TrialResult> first = trial.result(0);
  if (!first.ok()) {
    return first.error();
  }
  std::vector<EngineTiming> timings = {{engines[0], {}, true}};
  std::vector<std::size_t> numbers = {0};
  for (std::size_t i = 1; i < engines.size(); ++i) {
    const Result<TrialResult> other = trial.result(i);
    if (other.ok()) {
      timings.push_back({engines[i], {}, agree(first.value(), other.value(), dtype)});
      numbers.push_back(i);
    }
  }
  for (std::uint32_t round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < timings.size(); ++i) {
      const Result<double> took = trial.microseconds(numbers[i]);
      if (!took.ok()) {
        return took.error();
      }
      timings[i].microseconds.push_back(took.value());
    }
  }
  return timings;
}

Result<void> time_each(const std::set<ConvKey>& convolutions, std::uint32_t rounds,
                       const TrialMaker& make, const EngineTimingSink& take) {
  for (const ConvKey& key : convolutions) {
    const Result<std::unique_ptr<EngineTrial>> trial = make(key);
    if (!trial.ok()) {
      return trial.error();
    }
    const auto timings = time_in_turns(*trial.value(), rounds, key.dtype);
    if (!timings.ok()) {
      return timings.error();
    }
    if (!take(key, timings.value())) {
      break;
    }
  }
  return {};
}

}  // namespace mayfly::nn::cuda
