// How often DivergenceWatch takes a calm job for a diverging one, and after how many means it
// detects a diverging one, for losses with several kinds of noise. Prints the results, for the
// documentation.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "collectives/parameter_server/core/divergence_watch.hpp"

namespace mayfly::parameter_server {
namespace {

constexpr double kUniformLoss = 2.3;  // ten classes
constexpr int kRuns = 100;

/// A random number with mean 0 and deviation 1.
double bell(RandomStream& random) {
  double sum = 0;
  for (int i = 0; i < 12; ++i) {
    sum += random.unit() - 0.5;
  }
  return sum;
}

/// The factor of each mean; `before` is the factor of the previous mean.
struct Noise {
  std::string name;
  std::function<double(RandomStream& random, double before)> next;
  int alarms_max = 0;  // false alarms in kRuns long jobs
};

std::vector<Noise> noises() {
  const auto bells = [](double deviation) {
    return [deviation](RandomStream& random, double) {
      return std::max(0.0, 1 + deviation * bell(random));
    };
  };
  const auto few_samples = [](int samples) {
    return [samples](RandomStream& random, double) {
      double sum = 0;
      for (int i = 0; i < samples; ++i) {
        sum -= std::log(1 - random.unit());
      }
      return sum / samples;
    };
  };
  // The last numbers are above the results of these seeds, because logarithms may differ in the
  // last bit on other machines.
  return {{"bell, 10 %", bells(0.1), 0},
          {"bell, 30 %", bells(0.3), 2},
          {"8 samples with exponential losses", few_samples(8), 3},
          {"3 samples with exponential losses", few_samples(3), 8},
          {"logarithm bell, 0.5",
           [](RandomStream& random, double) { return std::exp(0.5 * bell(random) - 0.125); }, 6},
          {"bell, 20 %, like the one before by 0.7",
           [](RandomStream& random, double before) {
             return std::max(0.0, 1 + 0.7 * (before - 1) + 0.2 * std::sqrt(0.51) * bell(random));
           },
           2},
          {"bell, 20 %, one in 20 five times as high",
           [](RandomStream& random, double) {
             const double high = random.unit() < 0.05 ? 5 : 1;
             return high * std::max(0.0, 1 + 0.2 * bell(random));
           },
           2}};
}

/// Numbers of means of a job. In short jobs each mean is over one step
/// (engine/parameter_server/ps_job).
constexpr int kShort[] = {20, 40, 100};
constexpr int kLong = 400;

DivergenceOptions noisy_options() {
  DivergenceOptions made;
  made.falls_back = true;
  made.uniform_loss = kUniformLoss;
  made.slices = 1;
  return made;
}

/// A loss that falls from that of an untrained network. A quarter of the job has rounds; after them
/// the loss rises by half for a while, as it does when gradients become stale.
double calm_loss(int mean, int means) {
  const double falling = 0.1 + (kUniformLoss - 0.1) * std::exp(-4.0 * mean / means);
  const double since = static_cast<double>(mean - means / 4) / means;
  return since < 0 ? falling : falling * (1 + 0.5 * std::exp(-20 * since));
}

/// The number of false alarms in kRuns calm jobs; prints it.
int false_alarms(const Noise& noise, int means, bool has_rounds) {
  int alarms = 0;
  int doubts = 0;
  for (int run = 0; run < kRuns; ++run) {
    RandomStream random(CounterRandom(static_cast<std::uint64_t>(run)).split("loss"));
    DivergenceWatch watch(noisy_options());
    double factor = 1;
    for (int mean = 0; mean < means && !watch.has_diverged(); ++mean) {
      factor = noise.next(random, factor);
      const bool is_judged = !has_rounds || mean >= means / 4;
      watch.add(factor * calm_loss(mean, means), 1, 1, is_judged);
      doubts += watch.doubts() ? 1 : 0;
    }
    alarms += watch.has_diverged() ? 1 : 0;
  }
  std::printf("%-38s %3d means%s: %d false alarms in %d jobs, %d means in doubt\n",
              noise.name.c_str(), means, has_rounds ? ", rounds first" : "", alarms, kRuns, doubts);
  return alarms;
}

TEST(DivergenceNoise, OfShortCalmJobsIsNoAlarm) {
  for (const Noise& noise : noises()) {
    for (const int means : kShort) {
      for (const bool has_rounds : {true, false}) {
        EXPECT_EQ(false_alarms(noise, means, has_rounds), 0) << noise.name << ", " << means;
      }
    }
  }
}

TEST(DivergenceNoise, OfLongCalmJobsIsSeldomAnAlarm) {
  for (const Noise& noise : noises()) {
    EXPECT_LE(false_alarms(noise, kLong, true), noise.alarms_max) << noise.name;
    (void)false_alarms(noise, kLong, false);
  }
}

/// A way to diverge: the loss `since` means after the calm part of the job, whose loss is 0.5.
struct Divergence {
  std::string name;
  std::function<double(int since)> loss;
  int found_after = 0;  // at most so many means later
};

/// The number of means until the divergence is detected, for each of kRuns jobs, ascending.
std::vector<int> delays(const Noise& noise, const Divergence& divergence) {
  constexpr int kCalm = 40;
  constexpr int kMost = 200;
  std::vector<int> found;
  for (int run = 0; run < kRuns; ++run) {
    RandomStream random(CounterRandom(static_cast<std::uint64_t>(run)).split("loss"));
    DivergenceWatch watch(noisy_options());
    double factor = 1;
    int since = -kCalm;
    for (; !watch.has_diverged() && since < kMost; ++since) {
      factor = noise.next(random, factor);
      watch.add(factor * (since < 0 ? 0.5 : divergence.loss(since)), 1, 1, true);
    }
    found.push_back(since);
  }
  std::sort(found.begin(), found.end());
  return found;
}

TEST(DivergenceNoise, OfJobsThatDivergeHidesNothing) {
  const std::vector<Divergence> divergences = {
      {"grows by a tenth with each", [](int since) { return 0.5 * std::pow(1.1, since); }, 35},
      {"grows by half with each", [](int since) { return 0.5 * std::pow(1.5, since); }, 15},
      {"forgets all it knew", [](int) { return kUniformLoss; }, 20},
      {"is ten times as high", [](int) { return 5.0; }, 10}};
  for (const Noise& noise : noises()) {
    for (const Divergence& divergence : divergences) {
      const std::vector<int> found = delays(noise, divergence);
      std::printf("%-38s %-26s: found after %d means, at most %d\n", noise.name.c_str(),
                  divergence.name.c_str(), found[kRuns / 2], found.back());
      EXPECT_LE(found.back(), divergence.found_after) << noise.name << ", " << divergence.name;
    }
  }
}

}  // namespace
}  // namespace mayfly::parameter_server
