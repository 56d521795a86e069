// Compares batch norm of the host's kernels with double precision.

#include <cmath>
#include <vector>

#include "nn/cpu/block_layers.hpp"
#include "tests/unit/nn/cuda/kernels/calls.hpp"
#include "tests/unit/nn/cuda/kernels/on_host.hpp"

namespace mayfly::nn::cuda::test {
namespace {

/// Odd sizes: few and many channels, widths that fill no block, more rows than parts.
const std::vector<ActivationShape> kShapes = {{1, 1, 8},   {3, 5, 8},    {2, 7, 24}, {2, 9, 64},
                                              {5, 3, 160}, {3, 1, 2048}, {7, 37, 16}};

struct Moments {
  std::vector<double> mean, biased, unbiased;
};

Moments moments_of(const NormInput& input) {
  const std::vector<float> x = as_stored(input.dtype, input.x);
  const std::size_t channels = input.shape.channels;
  const auto n = static_cast<double>(input.shape.rows());
  Moments out{std::vector<double>(channels), std::vector<double>(channels),
              std::vector<double>(channels)};
  for (std::size_t i = 0; i < x.size(); ++i) {
    out.mean[i % channels] += x[i] / n;
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    out.biased[i % channels] += std::pow(x[i] - out.mean[i % channels], 2) / n;
  }
  for (std::size_t c = 0; c < channels; ++c) {
    out.unbiased[c] = out.biased[c] * n / (n - 1);
  }
  return out;
}

/// The allowed difference of output i from y: a few fp32 roundings of x * scale and of shift, which
/// may be large and almost cancel, and the rounding of the result to 16 bits.
double error_of(const NormInput& input, const Moments& moments, std::size_t i, double y) {
  const std::size_t c = i % input.shape.channels;
  const double scale = std::fabs(input.scale[c]) / std::sqrt(moments.biased[c] + 1e-5);
  const double summand = (std::fabs(input.x[i]) + std::fabs(moments.mean[c])) * scale;
  const double stored = rounding_of(input.dtype);
  return 1e-6 * (1 + summand) + stored * std::fabs(y);
}

std::vector<double> normalised(const NormInput& input, const Moments& moments) {
  const std::vector<float> x = as_stored(input.dtype, input.x);
  std::vector<double> out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % input.shape.channels;
    out[i] = (x[i] - moments.mean[c]) / std::sqrt(moments.biased[c] + 1e-5) * input.scale[c] +
             input.shift[c];
  }
  return out;
}

class Norm : public testing::TestWithParam<Dtype> {};

TEST_P(Norm, MeasuresMeanAndVarianceWhateverTheMean) {
  for (const ActivationShape& shape : kShapes) {
    const NormInput input = random_norm_input(shape, GetParam(), 1);
    const NormForward got = on_host([&](Machine& m) { return norm_forward(m, input); });
    const Moments want = moments_of(input);
    for (std::size_t c = 0; c < shape.channels; ++c) {
      EXPECT_NEAR(got.mean[c], want.mean[c], 1e-6 * (1 + std::fabs(want.mean[c])));
      if (shape.rows() > 1) {
        EXPECT_NEAR(got.variance[c], want.unbiased[c], 3e-6 * want.unbiased[c] + 1e-12);
      }
    }
  }
}

TEST_P(Norm, KeepsTheVarianceBesideAMeanAThousandDeviationsAway) {
  NormInput input = random_norm_input({4, 16, 32}, Dtype::kFp32, 2);
  for (float& x : input.x) {
    x = 1000 + std::fmod(x, 1.0F);
  }
  const NormForward got = on_host([&](Machine& m) { return norm_forward(m, input); });
  const Moments want = moments_of(input);
  for (std::size_t c = 0; c < 32; ++c) {
    EXPECT_NEAR(got.variance[c], want.unbiased[c], 1e-5 * want.unbiased[c]);
  }
}

TEST_P(Norm, AppliesNormResidualAndReluAndNotesWhereItWasActive) {
  for (const ActivationShape& shape : kShapes) {
    NormInput input = random_norm_input(shape, GetParam(), 3);
    input.in_place = shape.width == 5;
    const std::vector<float> residual = as_stored(GetParam(), input.residual);
    for (const int kind : {0, 1, 2}) {
      NormInput with = input;
      with.residual = kind == 0 ? std::vector<float>() : input.residual;
      if (kind == 2) {
        with.residual_scale = random_values(shape.channels, 8);
        with.residual_shift = random_values(shape.channels, 9);
      }
      const NormForward got = on_host([&](Machine& m) { return norm_forward(m, with); });
      const Moments moments = moments_of(with);
      const std::vector<double> norm = normalised(with, moments);
      for (std::size_t i = 0; i < norm.size(); ++i) {
        const std::size_t c = i % shape.channels;
        double y = norm[i];
        y += kind == 1 ? residual[i] : 0;
        y += kind == 2 ? double{residual[i]} * with.residual_scale[c] + with.residual_shift[c] : 0;
        const double error = error_of(with, moments, i, y);
        ASSERT_NEAR(got.out[i], std::fmax(y, 0), error);
        if (std::fabs(y) > error) {
          ASSERT_EQ(got.mask[i / 8] >> (i % 8) & 1, y > 0 ? 1 : 0);
        }
      }
    }
  }
}

TEST_P(Norm, InferenceUsesTheRunningStatistics) {
  const NormInput input = random_norm_input({2, 3, 24}, GetParam(), 4);
  Moments running = moments_of(input);
  std::vector<float> mean = random_values(24, 5);
  std::vector<float> variance(24, 0.5F);
  running.mean.assign(mean.begin(), mean.end());
  running.biased.assign(variance.begin(), variance.end());
  NormInput plain = input;
  plain.residual.clear();
  const NormForward got =
      on_host([&](Machine& m) { return norm_inference(m, plain, mean, variance); });
  const std::vector<double> want = normalised(plain, running);
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got.out[i], std::fmax(want[i], 0), error_of(plain, running, i, want[i]));
  }
}

/// The gradients of batch norm in double, for g = mask (gradient + addend).
struct NormReference {
  std::vector<double> g, scale_gradient, shift_gradient, x_gradient;

  NormReference(const NormInput& input, const std::vector<std::uint8_t>& mask)
      : g(input.x.size()),
        scale_gradient(input.shape.channels),
        shift_gradient(input.shape.channels),
        x_gradient(input.x.size()) {
    const std::vector<float> x = as_stored(input.dtype, input.x);
    const std::vector<float> gradient = as_stored(input.dtype, input.gradient);
    const std::vector<float> addend = as_stored(input.dtype, input.addend);
    const Moments moments = moments_of(input);
    const std::size_t channels = input.shape.channels;
    const auto n = static_cast<double>(input.shape.rows());
    const auto centred = [&](std::size_t i) {
      const std::size_t c = i % channels;
      return (x[i] - moments.mean[c]) / std::sqrt(moments.biased[c] + 1e-5);
    };
    for (std::size_t i = 0; i < g.size(); ++i) {
      const float total = addend.empty() ? gradient[i] : gradient[i] + addend[i];
      g[i] = (mask[i / 8] >> (i % 8) & 1) != 0 ? as_stored(input.dtype, {total})[0] : 0.0F;
      shift_gradient[i % channels] += g[i];
      scale_gradient[i % channels] += g[i] * centred(i);
    }
    for (std::size_t i = 0; i < g.size(); ++i) {
      const std::size_t c = i % channels;
      const double factor = input.scale[c] / std::sqrt(moments.biased[c] + 1e-5);
      x_gradient[i] = factor * (g[i] - shift_gradient[c] / n - centred(i) * scale_gradient[c] / n);
    }
  }
};

std::vector<std::uint8_t> norm_forward_mask(const NormInput& input) {
  HostMachine machine;
  NormInput forward = input;
  forward.in_place = false;
  return norm_forward(machine, forward).mask;
}

void expect_close(const std::vector<float>& got, const std::vector<double>& want, double relative) {
  double error = 0;
  double size = 1e-30;
  for (std::size_t i = 0; i < want.size(); ++i) {
    error += std::pow(got[i] - want[i], 2);
    size += std::pow(want[i], 2);
  }
  EXPECT_LT(std::sqrt(error / size), relative);
}

TEST_P(Norm, DerivesTheGradientsOfAMaskedSum) {
  for (const ActivationShape& shape : kShapes) {
    if (shape.rows() < 4) {
      continue;  // normalised away: the gradient of x is a difference of equal numbers
    }
    for (const bool with_addend : {false, true}) {
      NormInput input = random_norm_input(shape, GetParam(), 6);
      input.in_place = with_addend;
      if (!with_addend) {
        input.addend.clear();
      }
      const std::vector<std::uint8_t> mask = norm_forward_mask(input);
      const NormReference want(input, mask);
      const NormBackward got =
          on_host([&](Machine& m) { return norm_backward(m, input, mask, MaskedAt::kSums); });
      expect_close(got.shift_gradient, want.shift_gradient, 1e-5);
      expect_close(got.scale_gradient, want.scale_gradient, 1e-5);
      expect_close(got.x_gradient, want.x_gradient, 1e-5 + rounding_of(GetParam()));
      expect_close(got.masked, want.g, 1e-12);
    }
  }
}

TEST_P(Norm, GradientsOfParametersHaveNoScale) {
  constexpr float kScale = 0x1p10F;
  NormInput input = random_norm_input({2, 9, 64}, GetParam(), 10);
  input.gradient = as_stored(GetParam(), input.gradient);
  input.addend = as_stored(GetParam(), input.addend);
  const std::vector<std::uint8_t> mask = norm_forward_mask(input);
  const auto backward = [&] {
    return on_host([&](Machine& m) { return norm_backward(m, input, mask, MaskedAt::kSums); });
  };
  const NormBackward plain = backward();
  for (std::vector<float>* gradient : {&input.gradient, &input.addend}) {
    for (float& g : *gradient) {
      g *= kScale;
    }
  }
  input.scale_of_gradients = kScale;
  const NormBackward scaled = backward();
  EXPECT_TRUE(same_bits(scaled.scale_gradient, plain.scale_gradient));
  EXPECT_TRUE(same_bits(scaled.shift_gradient, plain.shift_gradient));
  for (std::size_t i = 0; i < plain.masked.size(); ++i) {
    ASSERT_EQ(scaled.masked[i], plain.masked[i] * kScale);
  }
}

TEST_P(Norm, StoresTheMaskedGradientInEitherPassToTheSameBits) {
  NormInput input = random_norm_input({2, 9, 64}, GetParam(), 7);
  input.addend.clear();
  const std::vector<std::uint8_t> mask = norm_forward_mask(input);
  const NormBackward at_sums =
      on_host([&](Machine& m) { return norm_backward(m, input, mask, MaskedAt::kSums); });
  input.in_place = true;
  const NormBackward at_apply =
      on_host([&](Machine& m) { return norm_backward(m, input, mask, MaskedAt::kApply); });
  EXPECT_TRUE(same_results(at_sums, at_apply));
}

TEST_P(Norm, ShowsANanInEveryNumberOfItsChannelAndInNoOther) {
  NormInput input = random_norm_input({2, 5, 16}, GetParam(), 8);
  input.residual.clear();
  input.x[16 * 7 + 3] = std::nanf("");
  const NormForward got = on_host([&](Machine& m) { return norm_forward(m, input); });
  for (std::size_t i = 0; i < input.x.size(); ++i) {
    ASSERT_EQ(std::isnan(got.out[i]), i % 16 == 3);
  }
}

TEST_P(Norm, RefusesChannelsThatAreNoGranules) {
  HostMachine machine;
  Region memory(machine, 4096);
  EXPECT_EQ(host_kernels().norm_sums({1, 2, 12}, GetParam(), memory.data(),
                                     static_cast<double*>(memory.data()), nullptr),
            kInvalidArguments);
  EXPECT_EQ(host_kernels().norm_apply({0, 2, 8}, GetParam(), {}, nullptr), kInvalidArguments);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Norm, testing::Values(Dtype::kFp32, Dtype::kBf16, Dtype::kFp16),
                         [](const auto& with) { return std::string(name_of(with.param)); });

/// Compares with the formulas of the CPU engine, for the same sums.
TEST(NormFactors, AreThoseOfTheCpuEngine) {
  const ActivationShape shape{3, 5, 16};
  NormInput input = random_norm_input(shape, Dtype::kFp32, 9);
  input.residual.clear();
  const NormForward got = on_host([&](Machine& m) { return norm_forward(m, input); });
  const Moments moments = moments_of(input);
  cpu::NormLayer layer(16, 75);
  std::vector<float> mean(16);
  std::vector<float> variance(16);
  for (std::size_t c = 0; c < 16; ++c) {
    layer.sums().first[c] = moments.mean[c] * 75;
    layer.sums().second[c] = (moments.biased[c] + moments.mean[c] * moments.mean[c]) * 75;
  }
  layer.measure(input.scale.data(), input.shift.data(), mean.data(), variance.data());
  for (std::size_t c = 0; c < 16; ++c) {
    EXPECT_FLOAT_EQ(got.mean[c], mean[c]);
    EXPECT_NEAR(got.variance[c], variance[c], 1e-6 * variance[c]);
    EXPECT_NEAR(got.scale[c], layer.affine().scale[c], 1e-6 * std::fabs(got.scale[c]));
    EXPECT_NEAR(got.shift[c], layer.affine().shift[c], 1e-5);
  }
}

}  // namespace
}  // namespace mayfly::nn::cuda::test
