#include "engine/reduction/gradient_sums.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "base/random.hpp"
#include "elastic/core/view.hpp"
#include "engine/reduction/model_layout.hpp"

namespace mayfly::engine {
namespace {

class GradientSumsTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kMicrobatches = 8;

  std::vector<float> vector_of(std::uint64_t microbatch) const {
    RandomStream random(CounterRandom(1).split(microbatch));
    std::vector<float> vector(layout.element_count());
    for (float& x : vector) {
      x = static_cast<float>(random.unit() - 0.5);
    }
    return vector;
  }
  void add(GradientSums& sums, std::uint64_t microbatch) const {
    const std::vector<float> vector = vector_of(microbatch);
    for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
      sums.add_bucket(b, vector);
    }
  }

  nn::Model model = nn::make_model("resnet20", 10).value();
  ReductionLayout layout = layout_of(model);
  std::vector<std::int32_t> exponents = std::vector<std::int32_t>(layout.blocks().block_count(), 0);
};

TEST_F(GradientSumsTest, ExactSumsDoNotDependOnOrderOrThreads) {
  GradientSums one(layout, Wire::kInt32, kMicrobatches);
  one.clear(exponents);
  for (std::uint64_t m = 0; m < kMicrobatches; ++m) {
    add(one, m);
  }
  GradientSums other(layout, Wire::kInt32, kMicrobatches);
  other.clear(exponents);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      add(other, 7 - t);
      add(other, t);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_TRUE(std::equal(one.words().begin(), one.words().end(), other.words().begin()));
  EXPECT_TRUE(std::equal(one.observed().begin(), one.observed().end(), other.observed().begin()));
  EXPECT_EQ(one.totals().overflows, 0);
}

TEST_F(GradientSumsTest, CountsBlocksThatDoNotFitTheirExponent) {
  GradientSums sums(layout, Wire::kInt32, kMicrobatches);
  exponents[0] = -3;  // magnitudes reach 2^-1
  sums.clear(exponents);
  add(sums, 0);
  EXPECT_EQ(sums.totals().overflows, 1);
  EXPECT_GT(sums.observed()[0], -3) << "says which exponent would have been right";
}

TEST_F(GradientSumsTest, NoticesNonFiniteGradientsInBothModes) {
  for (const Wire wire : {Wire::kInt32, Wire::kFp32}) {
    GradientSums sums(layout, wire, kMicrobatches);
    sums.clear(exponents);
    std::vector<float> vector = vector_of(0);
    vector.back() = std::nanf("");
    sums.add_bucket(0, vector);
    EXPECT_EQ(sums.totals().nonfinite, 1) << "exact " << is_exact(wire);
  }
}

TEST_F(GradientSumsTest, CountsOfAllMembersFitTheirSum) {
  GradientSums sums(layout, Wire::kInt32, kMicrobatches);
  sums.clear(exponents);
  for (int i = 0; i < 3; ++i) {
    sums.add_totals({.overflows = INT32_MAX, .nonfinite = INT32_MAX});
  }
  const StepTotals totals = sums.totals();
  EXPECT_GT(totals.overflows, 0);
  EXPECT_GT(totals.nonfinite, 0);
  EXPECT_LE(std::int64_t{totals.overflows} * elastic::kMembersMax, INT32_MAX);
  EXPECT_LE(std::int64_t{totals.nonfinite} * elastic::kMembersMax, INT32_MAX);
}

TEST(StepTotals, SampleHashTellsASampleUsedTwiceFromTwoSamples) {
  StepTotals each;
  each.add_sample(1);
  each.add_sample(2);
  StepTotals twice;
  twice.add_sample(1);
  twice.add_sample(1);
  StepTotals swapped;
  swapped.add_sample(2);
  swapped.add_sample(1);
  EXPECT_NE(each.sample_hash, twice.sample_hash);
  EXPECT_EQ(each.sample_hash, swapped.sample_hash);
  EXPECT_EQ(each.samples, 2);
}

}  // namespace
}  // namespace mayfly::engine
