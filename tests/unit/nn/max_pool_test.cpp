#include "nn/cpu/max_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "base/random.hpp"

namespace mayfly::nn::cpu {
namespace {

constexpr std::size_t kImages = 2;
constexpr std::size_t kChannels = 32;
constexpr float kUntouched = 12345;

enum class Input { kRandom, kTies };

void fill(Input kind, std::uint64_t stream, AlignedBuffer<float>& to) {
  const CounterRandom random = CounterRandom(3).split(stream);
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = kind == Input::kRandom ? static_cast<float>(random.unit(i) - 0.5)
                                   : static_cast<float>(random.below(i, 3)) - 1;
  }
}

/// The same pooling in simple loops that scatter gradients, for any blocked shape.
struct Reference {
  Reference(const MaxPool& pool, const AlignedBuffer<float>& input,
            const AlignedBuffer<float>& out_gradient)
      : out(pool.to().elements()), chosen(out.size()), gradient(input.size(), 0.0F) {
    const std::size_t block = pool.from().block;
    const std::size_t from = pool.from_width();
    const std::size_t to = pool.to_width();
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t lane = i % block;
      const std::size_t pixel = i / block % (to * to);
      const std::size_t plane = i / block / (to * to);
      choose(input, plane * from * from * block + lane, block, from, pixel / to, pixel % to, i);
      gradient[chosen[i]] += out_gradient[i];
    }
  }

  std::vector<float> out;
  std::vector<std::size_t> chosen;  ///< index into the input
  std::vector<float> gradient;

 private:
  void choose(const AlignedBuffer<float>& input, std::size_t base, std::size_t block,
              std::size_t from, std::size_t row, std::size_t column, std::size_t to) {
    bool is_first = true;
    for (std::size_t r = 2 * row; r <= 2 * row + 2; ++r) {  // the input's row plus 1
      for (std::size_t c = 2 * column; c <= 2 * column + 2; ++c) {
        if (r < 1 || c < 1 || r > from || c > from) {
          continue;
        }
        const std::size_t at = base + ((r - 1) * from + c - 1) * block;
        if (is_first || input[at] > out[to] || std::isnan(input[at])) {
          out[to] = input[at];
          chosen[to] = at;
          is_first = false;
        }
      }
    }
  }
};

using Parameters = std::tuple<Isa, std::size_t, std::size_t, Input>;

class MaxPoolTest : public testing::TestWithParam<Parameters> {
 protected:
  void SetUp() override {
    if (!machine_has(std::get<0>(GetParam()))) {
      GTEST_SKIP() << "this CPU lacks the instruction set";
    }
    fill(std::get<3>(GetParam()), 1, x_);
    fill(Input::kRandom, 2, out_gradient_);
    std::fill_n(gradient_.data(), gradient_.size(), kUntouched);
  }

  const MaxPool pool_{std::get<0>(GetParam()), kImages, kChannels, std::get<2>(GetParam()),
                      std::get<1>(GetParam())};
  AlignedBuffer<float> x_{pool_.from().elements()};
  AlignedBuffer<float> out_{pool_.to().elements()};
  AlignedBuffer<std::uint8_t> places_{pool_.place_count()};
  AlignedBuffer<float> out_gradient_{pool_.to().elements()};
  AlignedBuffer<float> gradient_{pool_.from().elements()};
};

// Up to four numbers are added in another order than in the reference. So gradients are equal up to
// rounding, and exactly equal where a pixel was chosen at most twice.
TEST_P(MaxPoolTest, TakesTheMaximumOfNormAndReluAndReturnsItsGradient) {
  std::vector<float> scale(kChannels);
  std::vector<float> shift(kChannels);
  for (std::size_t c = 0; c < kChannels; ++c) {
    scale[c] = c % 3 == 0 ? -1.5F : 0.5F + static_cast<float>(c) / 8;
    shift[c] = static_cast<float>(c % 5) / 4 - 0.5F;
  }
  AlignedBuffer<float> active(x_.size());
  const BlockedShape& shape = pool_.from();
  for (std::size_t i = 0; i < x_.size(); ++i) {
    const std::size_t plane = i / (shape.pixels * shape.block);
    const std::size_t c = plane * shape.block % kChannels + i % shape.block;
    const float product = x_[i] * scale[c];
    const bool fused = std::get<0>(GetParam()) != Isa::kPortable;  // it has no such instruction
    active[i] = std::max(0.0F, fused ? std::fma(x_[i], scale[c], shift[c]) : product + shift[c]);
  }
  pool_.forward(x_.data(), {scale.data(), shift.data()}, out_.data(), places_.data());
  pool_.backward(out_gradient_.data(), places_.data(), gradient_.data());
  const Reference reference(pool_, active, out_gradient_);
  EXPECT_TRUE(std::ranges::equal(out_.span(), reference.out));
  std::vector<int> times(gradient_.size());
  for (const std::size_t at : reference.chosen) {
    ++times[at];
  }
  for (std::size_t i = 0; i < gradient_.size(); ++i) {
    ASSERT_NEAR(gradient_[i], active[i] > 0 ? reference.gradient[i] : 0.0F,
                times[i] > 2 ? 3e-7 : 0.0)
        << i;
  }
}

TEST_P(MaxPoolTest, NanWinsOverEveryNumber) {
  x_[x_.size() / 2] = NAN;
  const std::vector<float> scale(kChannels, 1);
  const std::vector<float> shift(kChannels, 0);
  pool_.forward(x_.data(), {scale.data(), shift.data()}, out_.data(), places_.data());
  const Reference reference(pool_, x_, out_gradient_);
  const auto nans = [](float v) { return std::isnan(v); };
  EXPECT_EQ(std::ranges::count_if(out_.span(), nans), std::ranges::count_if(reference.out, nans));
  EXPECT_GT(std::ranges::count_if(out_.span(), nans), 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, MaxPoolTest,
                         testing::Combine(testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512),
                                          testing::Values(std::size_t{8}, std::size_t{16}),
                                          testing::Values(std::size_t{1}, std::size_t{2},
                                                          std::size_t{7}, std::size_t{8},
                                                          std::size_t{10}, std::size_t{112}),
                                          testing::Values(Input::kRandom, Input::kTies)));

}  // namespace
}  // namespace mayfly::nn::cpu
