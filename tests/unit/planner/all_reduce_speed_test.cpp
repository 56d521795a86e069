// The speed of an all-reduce job, in which each thread computes whole microbatches.

#include "planner/simulation/all_reduce_speed.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.hpp"

namespace mayfly::planner {
namespace {

double speed_of(const AllReduceJob& job, std::vector<std::uint32_t> workers) {
  return all_reduce_speed(job)(workers);
}

TEST(AllReduceSpeed, OfOneWorkerIsItsOwn) {
  const AllReduceJob job{8, 16, {{400, 2}}, 0.05};
  EXPECT_NEAR(speed_of(job, {1}), 400, 1e-6);
  EXPECT_EQ(speed_of(job, {0}), 0);
}

TEST(AllReduceSpeed, GoesWithWholeMicrobatches) {
  const AllReduceJob job{8, 16, {{100, 1}}, 0};
  EXPECT_NEAR(speed_of(job, {4}), 400, 1e-6);
  EXPECT_NEAR(speed_of(job, {5}), 400, 1e-6);  // some of the five have two microbatches
  EXPECT_NEAR(speed_of(job, {7}), 400, 1e-6);
  EXPECT_NEAR(speed_of(job, {8}), 800, 1e-6);
  EXPECT_NEAR(speed_of(job, {20}), 800, 1e-6);  // only eight of them have a microbatch
}

TEST(AllReduceSpeed, FasterMachinesGetMore) {
  // Machine 1 is three times as fast: it computes 6 of 8 microbatches while machine 0 computes 2.
  const AllReduceJob job{8, 16, {{100, 1}, {300, 1}}, 0};
  EXPECT_NEAR(speed_of(job, {1, 1}), 400, 1e-6);
  EXPECT_NEAR(speed_of(job, {0, 1}), 300, 1e-6);
}

TEST(AllReduceSpeed, IsThatOfTheBestShares) {
  const CounterRandom random(4);
  for (std::uint64_t number = 0; number < 200; ++number) {
    RandomStream draw(random.split(number));
    AllReduceJob job;
    job.microbatches = 1 + static_cast<std::uint32_t>(draw.below(20));
    job.machines = {{50 + 200 * draw.unit(), 1 + static_cast<std::uint32_t>(draw.below(3))},
                    {50 + 200 * draw.unit(), 1 + static_cast<std::uint32_t>(draw.below(3))}};
    const std::vector<std::uint32_t> workers = {1 + static_cast<std::uint32_t>(draw.below(4)),
                                                static_cast<std::uint32_t>(draw.below(4))};
    // Assigns one microbatch after the other to the thread that would complete it first.
    std::vector<std::pair<double, double>> threads;  // (busy until, time of one microbatch)
    for (std::size_t machine = 0; machine < 2; ++machine) {
      const WorkerSpeed& one = job.machines[machine];
      threads.insert(threads.end(), workers[machine] * one.threads,
                     {0, one.threads * 16 / one.images_per_s});
    }
    double end = 0;
    for (std::uint32_t i = 0; i < job.microbatches; ++i) {
      const auto next = std::ranges::min_element(
          threads, {}, [](const auto& thread) { return thread.first + thread.second; });
      next->first += next->second;
      end = std::max(end, next->first);
    }
    EXPECT_NEAR(compute_seconds(job, workers), end, 1e-6 * end) << number;
  }
}

TEST(AllReduceSpeed, ExchangeIsFittedToMeasurements) {
  AllReduceJob job{64, 16, {{100, 1}}, 0.5};
  const ClusterSpeed truth = all_reduce_speed(job);
  std::vector<MeasuredSpeed> measured;
  for (const std::uint32_t n : {1U, 2U, 4U, 8U}) {
    measured.push_back({n, truth(std::vector<std::uint32_t>{n})});
  }
  job.exchange_s = 0;
  EXPECT_NEAR(fitted_exchange(job, measured), 0.5, 1e-9);
  EXPECT_EQ(fitted_exchange(job, {{1, 100}}), 0);
}

}  // namespace
}  // namespace mayfly::planner
