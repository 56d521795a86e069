#include "engine/reduction/gradient_wire.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "base/random.hpp"
#include "collectives/plan/reduce_kernels.hpp"
#include "engine/reduction/model_layout.hpp"

namespace mayfly::engine {
namespace {

constexpr std::uint32_t kWireMicrobatches = 8;
constexpr float kMean = 1.0F / kWireMicrobatches;

/// Workers that share the microbatches of one step and reduce without a network.
class WireTest : public ::testing::Test {
 protected:
  struct Worker {
    std::unique_ptr<GradientSums> sums;
    std::unique_ptr<GradientWire> wire;
  };
  struct Step {
    StepTotals totals;
    std::vector<float> mean;
    std::vector<std::int32_t> next;
    std::vector<std::int32_t> raised;
  };

  std::vector<Worker> workers_of(Wire wire, std::size_t count) {
    std::vector<Worker> workers;
    for (std::size_t w = 0; w < count; ++w) {
      workers.push_back({std::make_unique<GradientSums>(layout, wire, kWireMicrobatches, 1),
                         make_gradient_wire(wire, layout, kWireMicrobatches)});
      workers.back().wire->begin_view(static_cast<std::uint32_t>(count));
    }
    return workers;
  }

  std::vector<float> gradient(std::uint64_t step, std::uint32_t microbatch) const {
    RandomStream random(CounterRandom(step).split(microbatch));
    std::vector<float> vector(layout.element_count());
    for (float& x : vector) {
      x = scale * static_cast<float>(random.unit() - 0.5);
    }
    return vector;
  }

  /// The exact mean of gradient() over all microbatches.
  std::vector<double> truth(std::uint64_t step) const {
    std::vector<double> mean(layout.element_count());
    for (std::uint32_t m = 0; m < kWireMicrobatches; ++m) {
      const std::vector<float> part = gradient(step, m);
      for (std::size_t i = 0; i < mean.size(); ++i) {
        mean[i] += static_cast<double>(part[i]) / kWireMicrobatches;
      }
    }
    return mean;
  }

  void compute(std::vector<Worker>& workers, std::uint64_t step) {
    for (Worker& worker : workers) {
      worker.sums->clear(exponents, step);
    }
    for (std::uint32_t m = 0; m < kWireMicrobatches; ++m) {
      const std::vector<float> vector = gradient(step, m);
      for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
        workers[m % workers.size()].sums->add_bucket(b, vector, m);
      }
    }
  }

  /// All-reduces the messages of one bucket: every worker gets the sums over all workers.
  static void reduce(std::vector<WireMessages>& messages) {
    for (std::size_t m = 0; m < messages[0].count; ++m) {
      const WireMessage& first = messages[0].list[m];
      const std::size_t bytes = first.count * collectives::size_of(first.type);
      for (std::size_t w = 1; w < messages.size(); ++w) {
        collectives::reduce(first.data, messages[w].list[m].data, first.count, first.type,
                            collectives::ReduceOp::kSum);
      }
      for (std::size_t w = 1; w < messages.size(); ++w) {
        std::memcpy(messages[w].list[m].data, first.data, bytes);
      }
    }
  }

  Step step(std::vector<Worker>& workers, std::uint64_t number) {
    compute(workers, number);
    std::vector<std::int32_t> largest(exponents.size(), collectives::kUnsetExponent);
    for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
      std::vector<WireMessages> messages;
      for (Worker& worker : workers) {
        worker.sums->settle(b);
        messages.push_back(worker.wire->pack(b, *worker.sums));
      }
      reduce(messages);
      for (Worker& worker : workers) {
        worker.wire->arrived(b);
      }
    }
    for (const Worker& worker : workers) {
      for (std::size_t b = 0; b < largest.size(); ++b) {
        largest[b] = std::max(largest[b], worker.sums->observed()[b]);
      }
    }
    return result(*workers.back().wire, largest);
  }

  Step result(GradientWire& wire, const std::vector<std::int32_t>& largest) const {
    Step step;
    step.totals = wire.totals(exponents, largest);
    step.mean.resize(layout.element_count());
    for (std::size_t b = 0; b < layout.blocks().block_count(); ++b) {
      wire.mean(b, exponents, kMean,
                std::span(step.mean).subspan(layout.blocks().offset(b), layout.blocks().size(b)));
    }
    for (std::size_t b = 0; b < exponents.size(); ++b) {
      step.next.push_back(wire.next_exponent(mayfly::Step{8}, b, exponents[b], largest[b]));
      step.raised.push_back(wire.raised_exponent(b, exponents[b], largest[b]));
    }
    return step;
  }

  /// Relative L2 error of a mean over the parameters.
  double error_of(const std::vector<float>& mean, const std::vector<double>& wanted) const {
    double error = 0;
    double norm = 0;
    for (std::size_t i = layout.parameters_offset(); i < mean.size(); ++i) {
      error += (mean[i] - wanted[i]) * (mean[i] - wanted[i]);
      norm += wanted[i] * wanted[i];
    }
    return std::sqrt(error / norm);
  }

  nn::Model model = nn::make_model("resnet20", 10).value();
  ReductionLayout layout = layout_of(model);
  std::vector<std::int32_t> exponents = std::vector<std::int32_t>(layout.blocks().block_count(), 3);
  float scale = 1;
};

class ExactWires : public WireTest, public ::testing::WithParamInterface<Wire> {};

TEST_P(ExactWires, GiveTheSameBitsForAnyNumberOfWorkersAndBuckets) {
  std::vector<Worker> one = workers_of(GetParam(), 1);
  const Step alone = step(one, 3);
  EXPECT_EQ(alone.totals.overflows, 0);
  for (const std::size_t count : {2U, 3U, 8U, 9U}) {
    layout.cut_buckets(std::size_t{1} << (8 + count));
    std::vector<Worker> workers = workers_of(GetParam(), count);
    const Step together = step(workers, 3);
    EXPECT_EQ(together.mean, alone.mean) << count;
    EXPECT_EQ(together.next, alone.next) << count;
  }
}

TEST_P(ExactWires, AnOverflowIsSeenAndItsBlockAloneIsRaisedUntilItFits) {
  exponents[5] = -20;
  exponents.back() = collectives::kUnsetExponent;
  std::vector<Worker> workers = workers_of(GetParam(), 2);
  const Step first = step(workers, 1);
  EXPECT_EQ(first.totals.nonfinite, 0);
  EXPECT_GT(first.totals.overflows, 0);
  EXPECT_GT(first.raised[5], -2);
  EXPECT_GT(first.raised.back(), -2);
  exponents = first.raised;
  EXPECT_EQ(step(workers, 1).totals.overflows, 0) << "one attempt more is enough";
}

TEST_P(ExactWires, AWorkerWithoutMicrobatchesAddsNothing) {
  std::vector<Worker> some = workers_of(GetParam(), kWireMicrobatches);
  std::vector<Worker> more = workers_of(GetParam(), kWireMicrobatches + 3);
  (void)step(more, 1);  // these workers have old sums now
  EXPECT_EQ(step(more, 2).mean, step(some, 2).mean);
}

INSTANTIATE_TEST_SUITE_P(Exact, ExactWires, ::testing::Values(Wire::kInt32, Wire::kInt16),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST_F(WireTest, EveryWireIsAboutRight) {
  const std::vector<double> wanted = truth(4);
  const std::vector<std::pair<Wire, double>> bounds = {{Wire::kInt32, 1e-6},
                                                       {Wire::kFp32, 1e-6},
                                                       {Wire::kBf16, 5e-3},
                                                       {Wire::kFp16, 1e-3},
                                                       {Wire::kInt16, 2e-3}};
  for (const auto& [wire, bound] : bounds) {
    std::vector<Worker> workers = workers_of(wire, 2);
    const Step found = step(workers, 4);
    EXPECT_LT(error_of(found.mean, wanted), bound) << name_of(wire);
    for (std::size_t i = 0; i < layout.parameters_offset(); ++i) {
      ASSERT_NEAR(found.mean[i], wanted[i], 1e-6) << "loss and statistics keep 32 bits";
    }
  }
}

TEST_F(WireTest, TheGridOfInt16FollowsTheTotal) {
  std::vector<Worker> workers = workers_of(Wire::kInt16, 2);
  for (std::uint64_t s = 1; s <= 30; ++s) {
    const Step found = step(workers, s);
    exponents = found.totals.overflows > 0 ? found.raised : found.next;
  }
  // In a block of 1024, sums of eight values in +-0.5 reach about +-2. The grid adds four bits of
  // headroom.
  for (std::size_t b = layout.blocks().first_block_at(layout.parameters_offset());
       b < exponents.size(); ++b) {
    EXPECT_GE(exponents[b], 3);
    EXPECT_LE(exponents[b], 6);
  }
}

TEST_F(WireTest, ATotalThatLeavesInt16IsFoundOutAndRaised) {
  exponents.assign(exponents.size(), -2);
  exponents[0] = 1;
  std::fill_n(exponents.begin(), layout.blocks().first_block_at(layout.parameters_offset()), 1);
  std::vector<Worker> workers = workers_of(Wire::kInt16, 2);
  const Step first = step(workers, 1);
  EXPECT_GT(first.totals.overflows, 0);
  exponents = first.raised;
  EXPECT_EQ(step(workers, 1).totals.overflows, 0);
}

class HalfWires : public WireTest, public ::testing::WithParamInterface<Wire> {};

TEST_P(HalfWires, WhatRoundingTakesComesBackLater) {
  // Method: the same gradient for many steps; with feedback the mean over time is exact.
  std::vector<Worker> workers = workers_of(GetParam(), 2);
  const std::vector<double> wanted = truth(1);
  std::vector<double> mean(wanted.size());
  constexpr int kSteps = 64;
  double first = 0;
  for (int s = 0; s < kSteps; ++s) {
    const Step found = step(workers, 1);
    first = s == 0 ? error_of(found.mean, wanted) : first;
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] += static_cast<double>(found.mean[i]) / kSteps;
    }
  }
  const std::vector<float> over_time(mean.begin(), mean.end());
  EXPECT_LT(error_of(over_time, wanted), first / 2)
      << "what remains is rounding inside the all-reduce, which nobody feeds back";
  std::vector<Worker> alone = workers_of(GetParam(), 1);
  std::fill(mean.begin(), mean.end(), 0.0);
  for (int s = 0; s < kSteps; ++s) {
    const Step found = step(alone, 1);
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] += static_cast<double>(found.mean[i]) / kSteps;
    }
  }
  EXPECT_LT(error_of(std::vector<float>(mean.begin(), mean.end()), wanted), first / 20);
}

TEST_P(HalfWires, AViewBeginsWithoutAResidual) {
  std::vector<Worker> used = workers_of(GetParam(), 2);
  std::vector<Worker> fresh = workers_of(GetParam(), 2);
  (void)step(used, 1);
  for (Worker& worker : used) {
    worker.wire->begin_view(2);
  }
  EXPECT_EQ(step(used, 2).mean, step(fresh, 2).mean);
}

TEST_P(HalfWires, NothingOfAStepThatIsNotFiniteStaysForTheNext) {
  std::vector<Worker> workers = workers_of(GetParam(), 2);
  std::vector<float> infinite = gradient(1, 0);
  infinite.back() = std::numeric_limits<float>::infinity();
  infinite[infinite.size() - 2] = std::numeric_limits<float>::quiet_NaN();
  for (Worker& worker : workers) {
    worker.sums->clear(exponents, 1);
    for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
      worker.sums->add_bucket(b, infinite, 0);
      worker.sums->settle(b);
      (void)worker.wire->pack(b, *worker.sums);
    }
    EXPECT_GT(worker.sums->totals().nonfinite, 0);
  }
  const Step after = step(workers, 2);
  EXPECT_EQ(after.totals.nonfinite, 0);
  EXPECT_TRUE(std::ranges::all_of(after.mean, [](float x) { return std::isfinite(x); }));
}

TEST_P(HalfWires, AStepWithoutAnUpdateLeavesNoResidual) {
  std::vector<Worker> workers = workers_of(GetParam(), 1);
  std::vector<Worker> fresh = workers_of(GetParam(), 1);
  (void)step(workers, 1);
  std::vector<float> infinite = gradient(1, 0);
  infinite.back() = std::numeric_limits<float>::infinity();
  Worker& worker = workers.front();
  worker.sums->clear(exponents, 2);
  for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
    worker.sums->add_bucket(b, infinite, 0);
    worker.sums->settle(b);
    (void)worker.wire->pack(b, *worker.sums);
    worker.wire->arrived(b);
  }
  EXPECT_GT(worker.wire->totals(exponents, {}).nonfinite, 0);
  EXPECT_EQ(step(workers, 3).mean, step(fresh, 3).mean);
}

INSTANTIATE_TEST_SUITE_P(Half, HalfWires, ::testing::Values(Wire::kBf16, Wire::kFp16),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST_F(WireTest, Fp16SumsDoNotBecomeInfinite) {
  scale = 1e6F;
  std::vector<Worker> workers = workers_of(Wire::kFp16, 3);
  const Step found = step(workers, 1);
  for (std::size_t i = layout.parameters_offset(); i < found.mean.size(); ++i) {
    ASSERT_TRUE(std::isfinite(found.mean[i]));
  }
}

}  // namespace
}  // namespace mayfly::engine
