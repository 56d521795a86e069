#include "nn/cpu/winograd.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "base/random.hpp"

namespace mayfly::nn::cpu {
namespace {

struct Case {
  std::size_t images;
  std::size_t in;
  std::size_t out;
  std::size_t size;
};

// Sizes that are and are not multiples of a tile, fewer tiles than a batch, batches that end inside
// an image, equal and different numbers of channels.
constexpr Case kCases[] = {{2, 16, 16, 32}, {3, 32, 32, 16},  {5, 64, 64, 8}, {1, 16, 32, 7},
                           {2, 32, 16, 5},  {1, 128, 128, 9}, {1, 16, 48, 4}, {1, 32, 32, 30},
                           {3, 48, 16, 1},  {1, 512, 16, 7},  {1, 16, 512, 7}};

std::size_t block_of(Isa isa) {
  return isa == Isa::kAvx512 ? 16 : 8;
}

/// A blocked tensor with readable elements.
class Tensor {
 public:
  Tensor(std::size_t images, std::size_t channels, std::size_t size, std::size_t block)
      : channels_(channels), size_(size), block_(block), values_(images * channels * size * size) {}

  void fill(std::uint64_t seed, double low, double high) {
    const CounterRandom random(seed);
    for (std::size_t i = 0; i < values_.size(); ++i) {
      values_[i] = static_cast<float>(low + (high - low) * random.unit(i));
    }
  }
  [[nodiscard]] std::size_t index(std::size_t n, std::size_t c, std::size_t y,
                                  std::size_t x) const {
    const std::size_t plane = n * (channels_ / block_) + c / block_;
    return ((plane * size_ + y) * size_ + x) * block_ + c % block_;
  }
  [[nodiscard]] float at(std::size_t n, std::size_t c, std::size_t y, std::size_t x) const {
    return values_[index(n, c, y, x)];
  }
  float* data() { return values_.data(); }
  [[nodiscard]] std::size_t count() const { return values_.size(); }

 private:
  std::size_t channels_;
  std::size_t size_;
  std::size_t block_;
  AlignedBuffer<float> values_;
};

using Pixels = std::function<double(std::size_t n, std::size_t c, std::size_t y, std::size_t x)>;

struct Errors {
  double difference = 0;
  double norm = 0;
  void add(double found, double expected) {
    difference += (found - expected) * (found - expected);
    norm += expected * expected;
  }
  [[nodiscard]] double relative() const { return std::sqrt(difference / norm); }
};

class Winograd : public testing::TestWithParam<std::tuple<Isa, Case>> {
 protected:
  Winograd()
      : isa_(std::get<0>(GetParam())),
        c_(std::get<1>(GetParam())),
        shape_{c_.images, c_.in, c_.out, c_.size},
        x_(c_.images, c_.in, c_.size, block_of(isa_)),
        y_(c_.images, c_.out, c_.size, block_of(isa_)),
        gradient_(c_.images, c_.out, c_.size, block_of(isa_)),
        x_gradient_(c_.images, c_.in, c_.size, block_of(isa_)),
        weights_(c_.in * c_.out * 9),
        weight_gradient_(c_.in * c_.out * 9),
        transformed_(shape_.weight_floats()),
        sums_(shape_.weight_floats()),
        scratch_(shape_.scratch_floats()) {}

  void SetUp() override {
    if (!machine_has(isa_)) {
      GTEST_SKIP() << "this CPU lacks the instruction set";
    }
    x_.fill(1, -1, 1);
    gradient_.fill(2, -1, 1);
    const CounterRandom random(3);
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] = static_cast<float>(random.unit(i) - 0.5);
    }
  }

  [[nodiscard]] const WinogradKernels& kernels() const { return winograd_for(isa_, Dtype::kFp32); }
  [[nodiscard]] double weight(std::size_t k, std::size_t c, std::size_t i, std::size_t j) const {
    return weights_[(k * c_.in + c) * 9 + 3 * i + j];
  }
  /// The value at (y - 1, x - 1), 0 outside.
  [[nodiscard]] double shifted(const Pixels& from, std::size_t n, std::size_t c, std::size_t y,
                               std::size_t x) const {
    const bool inside = y >= 1 && x >= 1 && y <= c_.size && x <= c_.size;
    return inside ? from(n, c, y - 1, x - 1) : 0.0;
  }
  template <typename Visit>
  void for_each(std::size_t channels, const Visit& visit) const {
    for (std::size_t n = 0; n < c_.images; ++n) {
      for (std::size_t c = 0; c < channels; ++c) {
        for (std::size_t y = 0; y < c_.size; ++y) {
          for (std::size_t x = 0; x < c_.size; ++x) {
            visit(n, c, y, x);
          }
        }
      }
    }
  }
  [[nodiscard]] double forward_at(const Pixels& from, std::size_t n, std::size_t k, std::size_t y,
                                  std::size_t x) const {
    double sum = 0;
    for (std::size_t c = 0; c < c_.in; ++c) {
      for (std::size_t t = 0; t < 9; ++t) {
        sum += shifted(from, n, c, y + t / 3, x + t % 3) * weight(k, c, t / 3, t % 3);
      }
    }
    return sum;
  }
  [[nodiscard]] double input_gradient_at(const Pixels& gradient, std::size_t n, std::size_t c,
                                         std::size_t y, std::size_t x) const {
    double sum = 0;
    for (std::size_t k = 0; k < c_.out; ++k) {
      for (std::size_t t = 0; t < 9; ++t) {
        sum += shifted(gradient, n, k, y + 2 - t / 3, x + 2 - t % 3) * weight(k, c, t / 3, t % 3);
      }
    }
    return sum;
  }
  [[nodiscard]] Errors weight_gradient_errors(const Pixels& from, const Pixels& gradient) const {
    Errors errors;
    for (std::size_t k = 0; k < c_.out; k += 5) {
      for (std::size_t c = 0; c < c_.in; c += 3) {
        for (std::size_t t = 0; t < 9; ++t) {
          double sum = 0;
          for (std::size_t n = 0; n < c_.images; ++n) {
            for (std::size_t p = 0; p < c_.size * c_.size; ++p) {
              const std::size_t y = p / c_.size;
              const std::size_t x = p % c_.size;
              sum += gradient(n, k, y, x) * shifted(from, n, c, y + t / 3, x + t % 3);
            }
          }
          errors.add(weight_gradient_[(k * c_.in + c) * 9 + t], sum);
        }
      }
    }
    return errors;
  }
  [[nodiscard]] Pixels plain(const Tensor& tensor) const {
    return [&tensor](std::size_t n, std::size_t c, std::size_t y, std::size_t x) {
      return static_cast<double>(tensor.at(n, c, y, x));
    };
  }

  Isa isa_;
  Case c_;
  WinogradShape shape_;
  Tensor x_;
  Tensor y_;
  Tensor gradient_;
  Tensor x_gradient_;
  AlignedBuffer<float> weights_;
  AlignedBuffer<float> weight_gradient_;
  AlignedBuffer<float> transformed_;
  AlignedBuffer<float> sums_;
  AlignedBuffer<float> scratch_;
};

TEST_P(Winograd, ForwardIsTheConvolutionAndItsMoments) {
  std::vector<double> first(c_.out, NAN);
  std::vector<double> second(c_.out, NAN);
  kernels().transform_weights(shape_, weights_.data(), transformed_.data());
  kernels().forward(shape_, {.x = x_.data()}, transformed_.data(),
                    {y_.data(), true, {first.data(), second.data()}}, scratch_.data());
  Errors errors;
  std::vector<double> sums(c_.out);
  std::vector<double> squares(c_.out);
  for_each(c_.out, [&](std::size_t n, std::size_t k, std::size_t y, std::size_t x) {
    const double found = y_.at(n, k, y, x);
    errors.add(found, forward_at(plain(x_), n, k, y, x));
    sums[k] += found;
    squares[k] += found * found;
  });
  EXPECT_LT(errors.relative(), 5e-6);
  for (std::size_t k = 0; k < c_.out; ++k) {
    EXPECT_NEAR(first[k], sums[k], 1e-6 * std::sqrt(squares[k] * static_cast<double>(y_.count())));
    EXPECT_NEAR(second[k] / squares[k], 1.0, 1e-6);
  }
}

TEST_P(Winograd, ALargeMeanLeavesTheVarianceItsDigits) {
  x_.fill(4, 99, 101);
  std::vector<double> first(c_.out, NAN);
  std::vector<double> second(c_.out, NAN);
  kernels().transform_weights(shape_, weights_.data(), transformed_.data());
  kernels().forward(shape_, {.x = x_.data()}, transformed_.data(),
                    {y_.data(), true, {first.data(), second.data()}}, scratch_.data());
  const auto pixels = static_cast<double>(c_.images * c_.size * c_.size);
  std::vector<double> squares(c_.out);
  for_each(c_.out, [&](std::size_t n, std::size_t k, std::size_t y, std::size_t x) {
    const double centred = y_.at(n, k, y, x) - first[k] / pixels;
    squares[k] += centred * centred;
  });
  for (std::size_t k = 0; k < c_.out; ++k) {
    EXPECT_NEAR((second[k] - first[k] * first[k] / pixels) / squares[k], 1.0, 1e-5);
  }
}

TEST_P(Winograd, NanPassesThroughNormAndRelu) {
  const std::vector<float> scale(c_.in, 1.0F);
  const std::vector<float> shift(c_.in, 0.0F);
  x_.data()[x_.index(0, 1, 0, 0)] = NAN;
  kernels().transform_weights(shape_, weights_.data(), transformed_.data());
  kernels().forward(shape_, {x_.data(), true, {scale.data(), shift.data()}}, transformed_.data(),
                    {.out = y_.data()}, scratch_.data());
  for (std::size_t k = 0; k < c_.out; ++k) {
    EXPECT_TRUE(std::isnan(y_.at(0, k, 0, 0))) << k;
  }
}

TEST_P(Winograd, ForwardReadsThroughNormAndRelu) {
  std::vector<float> scale(c_.in);
  std::vector<float> shift(c_.in);
  for (std::size_t c = 0; c < c_.in; ++c) {
    scale[c] = 0.5F + 0.01F * static_cast<float>(c);
    shift[c] = 0.2F - 0.02F * static_cast<float>(c % 16);
  }
  kernels().transform_weights(shape_, weights_.data(), transformed_.data());
  kernels().forward(shape_, {x_.data(), true, {scale.data(), shift.data()}}, transformed_.data(),
                    {.out = y_.data()}, scratch_.data());
  const Pixels normalised = [&](std::size_t n, std::size_t c, std::size_t y, std::size_t x) {
    return std::max(0.0, static_cast<double>(std::fma(x_.at(n, c, y, x), scale[c], shift[c])));
  };
  Errors errors;
  for_each(c_.out, [&](std::size_t n, std::size_t k, std::size_t y, std::size_t x) {
    errors.add(y_.at(n, k, y, x), forward_at(normalised, n, k, y, x));
  });
  EXPECT_LT(errors.relative(), 5e-6);
}

TEST_P(Winograd, BackwardGivesBothGradients) {
  kernels().transform_weights_for_backward(shape_, weights_.data(), transformed_.data());
  kernels().backward(shape_, {.x = x_.data()}, {.gradient = gradient_.data()}, transformed_.data(),
                     {.out = x_gradient_.data()}, sums_.data(), weight_gradient_.data(),
                     scratch_.data());
  Errors errors;
  for_each(c_.in, [&](std::size_t n, std::size_t c, std::size_t y, std::size_t x) {
    errors.add(x_gradient_.at(n, c, y, x), input_gradient_at(plain(gradient_), n, c, y, x));
  });
  EXPECT_LT(errors.relative(), 5e-6);
  EXPECT_LT(weight_gradient_errors(plain(x_), plain(gradient_)).relative(), 1e-5);
}

/// A norm's backward factors per channel.
struct Factors {
  explicit Factors(std::size_t channels)
      : gradient(channels), centred(channels), constant(channels), mean(channels) {
    for (std::size_t c = 0; c < channels; ++c) {
      gradient[c] = 0.7F + 0.01F * static_cast<float>(c % 7);
      centred[c] = 0.05F - 0.01F * static_cast<float>(c % 5);
      constant[c] = 0.02F;
      mean[c] = 0.1F;
    }
  }
  [[nodiscard]] NormGradient view() const {
    return {gradient.data(), centred.data(), constant.data(), mean.data()};
  }
  std::vector<float> gradient, centred, constant, mean;
};

TEST_P(Winograd, BackwardReadsThroughTheNormAndMasksAndSums) {
  const Factors factors(c_.out);
  Tensor raw(c_.images, c_.out, c_.size, block_of(isa_));
  raw.fill(7, -1, 1);
  Tensor addend(c_.images, c_.in, c_.size, block_of(isa_));
  addend.fill(8, -3, 3);
  Tensor relu_output(c_.images, c_.in, c_.size, block_of(isa_));
  relu_output.fill(9, -1, 1);
  std::vector<float> mean(c_.in, 0.25F);
  std::vector<double> first(c_.in, NAN);
  std::vector<double> second(c_.in, NAN);
  kernels().transform_weights_for_backward(shape_, weights_.data(), transformed_.data());
  kernels().backward(shape_, {.x = x_.data()}, {gradient_.data(), true, raw.data(), factors.view()},
                     transformed_.data(),
                     {.out = x_gradient_.data(),
                      .addend = addend.data(),
                      .mask = ReluMask::kPositive,
                      .relu_output = relu_output.data(),
                      .x = x_.data(),
                      .mean = mean.data(),
                      .sums = {first.data(), second.data()}},
                     sums_.data(), weight_gradient_.data(), scratch_.data());
  const Pixels through = [&](std::size_t n, std::size_t k, std::size_t y, std::size_t x) {
    return static_cast<double>(factors.gradient[k]) * gradient_.at(n, k, y, x) +
           static_cast<double>(factors.centred[k]) *
               (static_cast<double>(raw.at(n, k, y, x)) - factors.mean[k]) +
           factors.constant[k];
  };
  Errors errors;
  std::vector<double> sums(c_.in);
  std::vector<double> products(c_.in);
  for_each(c_.in, [&](std::size_t n, std::size_t c, std::size_t y, std::size_t x) {
    const double expected = relu_output.at(n, c, y, x) > 0
                                ? input_gradient_at(through, n, c, y, x) + addend.at(n, c, y, x)
                                : 0.0;
    const double found = x_gradient_.at(n, c, y, x);
    errors.add(found, expected);
    sums[c] += found;
    products[c] += found * (static_cast<double>(x_.at(n, c, y, x)) - mean[c]);
  });
  EXPECT_LT(errors.relative(), 5e-6);
  EXPECT_LT(weight_gradient_errors(plain(x_), through).relative(), 1e-5);
  for (std::size_t c = 0; c < c_.in; ++c) {
    EXPECT_NEAR(first[c], sums[c], 1e-5 * std::sqrt(errors.norm));
    EXPECT_NEAR(second[c], products[c], 1e-5 * std::sqrt(errors.norm));
  }
}

TEST_P(Winograd, AnImageDoesNotDependOnItsCompany) {
  kernels().transform_weights(shape_, weights_.data(), transformed_.data());
  kernels().forward(shape_, {.x = x_.data()}, transformed_.data(), {.out = y_.data()},
                    scratch_.data());
  const std::size_t pixels = c_.size * c_.size;
  AlignedBuffer<float> alone(c_.out * pixels);
  const WinogradShape one{1, c_.in, c_.out, c_.size};
  for (std::size_t n = 0; n < c_.images; ++n) {
    kernels().forward(one, {.x = x_.data() + n * c_.in * pixels}, transformed_.data(),
                      {.out = alone.data()}, scratch_.data());
    for (std::size_t i = 0; i < alone.size(); ++i) {
      ASSERT_EQ(alone[i], y_.data()[n * alone.size() + i]) << "image " << n << " element " << i;
    }
  }
}

std::string name_of(const testing::TestParamInfo<std::tuple<Isa, Case>>& info) {
  const auto& [isa, c] = info.param;
  const char* const set = isa == Isa::kAvx512 ? "avx512" : isa == Isa::kAvx2 ? "avx2" : "portable";
  return std::string(set) + "_" + std::to_string(c.images) + "x" + std::to_string(c.in) + "to" +
         std::to_string(c.out) + "at" + std::to_string(c.size);
}

INSTANTIATE_TEST_SUITE_P(Targets, Winograd,
                         testing::Combine(testing::Values(Isa::kAvx512, Isa::kAvx2, Isa::kPortable),
                                          testing::ValuesIn(kCases)),
                         name_of);

}  // namespace
}  // namespace mayfly::nn::cpu
