#include "benchmarks/step/peak_loops.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace mayfly::bench {
namespace {

class PeakLoopsOf : public ::testing::TestWithParam<nn::cpu::Isa> {
 protected:
  void SetUp() override {
    if (!nn::cpu::machine_has(GetParam())) {
      GTEST_SKIP() << "this machine lacks the instruction set";
    }
  }
};

TEST_P(PeakLoopsOf, MultiplyAddsAreCounted) {
  const PeakLoops& loops = peak_loops_for(GetParam());
  const double once = loops.multiply_add(1000);
  EXPECT_GT(once, 0);
  EXPECT_EQ(loops.multiply_add(3000), 3 * once);
}

TEST_P(PeakLoopsOf, TriadWritesEveryValueAndNoOther) {
  const PeakLoops& loops = peak_loops_for(GetParam());
  for (const std::size_t count : {0, 1, 15, 16, 37}) {
    std::vector<float> a(count + 1, -1);
    const std::vector<float> b(count, 2);
    const std::vector<float> c(count, 5);
    loops.triad(count, b.data(), c.data(), 3, a.data());
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(a[i], 17) << i << " of " << count;
    }
    EXPECT_EQ(a[count], -1);
  }
}

INSTANTIATE_TEST_SUITE_P(AllTargets, PeakLoopsOf,
                         ::testing::Values(nn::cpu::Isa::kPortable, nn::cpu::Isa::kAvx2,
                                           nn::cpu::Isa::kAvx512));

}  // namespace
}  // namespace mayfly::bench
