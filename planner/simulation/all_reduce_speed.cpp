#include "planner/simulation/all_reduce_speed.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.hpp"

namespace mayfly::planner {
namespace {

double images_per_step(const AllReduceJob& job) {
  return static_cast<double>(job.microbatches) * job.microbatch;
}

/// Seconds for one microbatch on each thread of a worker.
double round_seconds(const AllReduceJob& job, std::size_t machine) {
  const WorkerSpeed& worker = job.machines[machine];
  return static_cast<double>(worker.threads) * job.microbatch / worker.images_per_s;
}

}  // namespace

double compute_seconds(const AllReduceJob& job, std::span<const std::uint32_t> workers_of_machine) {
  // The step ends at the first end of a round of some machine until which all microbatches can be
  // computed. That is at most one round of a machine later than with divisible work.
  constexpr double kRounding = 1e-9;
  double speed = 0;
  for (std::size_t machine = 0; machine < workers_of_machine.size(); ++machine) {
    speed += workers_of_machine[machine] * job.machines[machine].images_per_s;
  }
  ENSURE(speed > 0, "someone computes");
  double at = images_per_step(job) / speed * (1 - kRounding);
  while (true) {
    double next = kNever;
    double done = 0;
    for (std::size_t machine = 0; machine < workers_of_machine.size(); ++machine) {
      if (workers_of_machine[machine] == 0) {
        continue;
      }
      const double round = round_seconds(job, machine);
      const double rounds = std::floor(at / round + kRounding);
      done += rounds * workers_of_machine[machine] * job.machines[machine].threads;
      next = std::min(next, (rounds + 1) * round);
    }
    if (done >= job.microbatches) {
      return at;
    }
    at = next;
  }
}

ClusterSpeed all_reduce_speed(AllReduceJob job) {
  ENSURE(job.microbatches > 0 && job.microbatch > 0, "a step has images");
  return [job = std::move(job)](std::span<const std::uint32_t> workers) {
    const std::uint32_t count = std::accumulate(workers.begin(), workers.end(), 0U);
    if (count == 0) {
      return 0.0;
    }
    const double exchange_s = job.exchange_s * (count - 1) / count;
    return images_per_step(job) / (compute_seconds(job, workers) + exchange_s);
  };
}

double fitted_exchange(const AllReduceJob& job, const std::vector<MeasuredSpeed>& measured) {
  double sum = 0;
  int count = 0;
  for (const MeasuredSpeed& one : measured) {
    if (one.workers < 2) {
      continue;
    }
    std::vector<std::uint32_t> workers(job.machines.size(), 0);
    workers.front() = one.workers;
    const double unhidden = images_per_step(job) / one.images_per_s - compute_seconds(job, workers);
    sum += std::max(0.0, unhidden) * one.workers / (one.workers - 1);
    ++count;
  }
  return count == 0 ? 0 : sum / count;
}

}  // namespace mayfly::planner
