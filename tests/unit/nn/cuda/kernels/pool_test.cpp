// Shortcut, max pooling and sums of gradients of the host's kernels have the bits of nn/cpu.

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "nn/cpu/block_layers.hpp"
#include "nn/cpu/max_pool.hpp"
#include "tests/unit/nn/cuda/kernels/calls.hpp"
#include "tests/unit/nn/cuda/kernels/on_host.hpp"

namespace mayfly::nn::cuda::test {
namespace {

constexpr std::size_t kPoolBlock = 8;

/// Where element i of an NHWC tensor is in the CPU's blocked layout.
std::size_t blocked(const ActivationShape& shape, std::size_t i) {
  const std::size_t channel = i % shape.channels;
  const std::size_t area = std::size_t{shape.width} * shape.width;
  const std::size_t pixel = i / shape.channels % area;
  const std::size_t image = i / shape.channels / area;
  const std::size_t plane = image * (shape.channels / kPoolBlock) + channel / kPoolBlock;
  return (plane * area + pixel) * kPoolBlock + channel % kPoolBlock;
}

template <typename T>
AlignedBuffer<T> to_blocked(const ActivationShape& shape, const std::vector<T>& values) {
  AlignedBuffer<T> out(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    out[blocked(shape, i)] = values[i];
  }
  return out;
}

template <typename T>
std::vector<T> from_blocked(const ActivationShape& shape, const AlignedBuffer<T>& values) {
  std::vector<T> out(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    out[i] = values[blocked(shape, i)];
  }
  return out;
}

cpu::BlockedShape blocked_shape(const ActivationShape& shape) {
  return {.images = shape.images,
          .channels = shape.channels,
          .pixels = std::size_t{shape.width} * shape.width,
          .block = kPoolBlock};
}

ActivationShape halved(const ActivationShape& from, std::uint32_t channels) {
  return {from.images, (from.width + 1) / 2, channels};
}

class Pool : public testing::TestWithParam<Dtype> {
 protected:
  // Random values that the dtype holds exactly, so that moving them changes nothing.
  [[nodiscard]] static std::vector<float> values(std::size_t count, std::uint64_t seed) {
    return as_stored(GetParam(), random_values(count, seed));
  }
};

TEST_P(Pool, ShortcutIsTheCpuEngines) {
  for (const ActivationShape& from : {ActivationShape{2, 8, 16}, {1, 7, 32}, {3, 1, 48}}) {
    const ActivationShape to = halved(from, 2 * from.channels);
    const cpu::DownsamplingShortcut reference(blocked_shape(from), from.width, Dtype::kFp32);
    const std::vector<float> x = values(from.elements(), 1);
    AlignedBuffer<float> out(to.elements());
    reference.forward(to_blocked(from, x).data(), out.data());
    EXPECT_EQ(on_host([&](Machine& m) { return shortcut(m, from, GetParam(), x); }).out,
              from_blocked(to, out));
    const std::vector<float> out_gradient = values(to.elements(), 2);
    AlignedBuffer<float> x_gradient(from.elements());
    reference.backward(to_blocked(to, out_gradient).data(), x_gradient.data());
    EXPECT_EQ(on_host([&](Machine& m) {
                return shortcut_gradient(m, from, GetParam(), out_gradient);
              }).out,
              from_blocked(from, x_gradient));
  }
}

TEST_P(Pool, ShortcutRefusesChannelsThatItsPaddingWouldCut) {
  HostMachine machine;
  const Region memory(machine, 4096);
  EXPECT_EQ(host_kernels().shortcut({1, 2, 8}, GetParam(), memory.data(), memory.data(), nullptr),
            kInvalidArguments);
}

/// Small integers, so that windows have ties and, with few images, one window has equal values.
std::vector<float> tied_values(std::size_t count, std::uint64_t seed) {
  std::vector<float> out = random_values(count, seed);
  for (float& x : out) {
    x = std::round(x);
  }
  return out;
}

TEST_P(Pool, MaximumPlacesAndGradientAreTheCpuEngines) {
  for (const ActivationShape& from :
       {ActivationShape{2, 8, 16}, {1, 7, 24}, {3, 1, 8}, {2, 2, 8}}) {
    for (const bool ties : {false, true}) {
      const ActivationShape to = halved(from, from.channels);
      const cpu::MaxPool reference(cpu::Isa::kPortable, from.images, from.channels, from.width,
                                   kPoolBlock);
      const std::vector<float> x =
          ties ? tied_values(from.elements(), 3) : values(from.elements(), 3);
      const std::vector<float> ones(from.channels, 1);
      const std::vector<float> zeros(from.channels, 0);
      AlignedBuffer<float> out(to.elements());
      AlignedBuffer<std::uint8_t> places(to.elements());
      reference.forward(to_blocked(from, x).data(), {ones.data(), zeros.data()}, out.data(),
                        places.data());
      const Plain got =
          on_host([&](Machine& m) { return max_pool(m, from, GetParam(), x, ones, zeros); });
      EXPECT_EQ(got.out, from_blocked(to, out));
      EXPECT_EQ(got.bytes, from_blocked(to, places));
      const std::vector<float> out_gradient = values(to.elements(), 4);
      AlignedBuffer<float> x_gradient(from.elements());
      reference.backward(to_blocked(to, out_gradient).data(), places.data(), x_gradient.data());
      EXPECT_EQ(on_host([&](Machine& m) {
                  return max_pool_gradient(m, from, GetParam(), out_gradient, got.bytes);
                }).out,
                as_stored(GetParam(), from_blocked(from, x_gradient)));
    }
  }
}

TEST_P(Pool, ReadsThroughNormAndReluWithoutStoringThat) {
  const ActivationShape from{2, 9, 16};
  const ActivationShape to = halved(from, from.channels);
  const std::vector<float> x = values(from.elements(), 5);
  const std::vector<float> scale = random_values(from.channels, 6);
  std::vector<float> shift = random_values(from.channels, 7);
  shift[3] = -5;  // a channel that is never active
  std::vector<float> normalised(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % from.channels;
    normalised[i] = std::max(0.0F, std::fma(x[i], scale[c], shift[c]));
  }
  const Plain want = on_host([&](Machine& m) {
    return max_pool(m, from, Dtype::kFp32, normalised, std::vector<float>(from.channels, 1),
                    std::vector<float>(from.channels, 0));
  });
  const Plain got =
      on_host([&](Machine& m) { return max_pool(m, from, GetParam(), x, scale, shift); });
  EXPECT_EQ(got.out, as_stored(GetParam(), want.out));
  EXPECT_EQ(got.bytes, want.bytes);
  EXPECT_TRUE(std::ranges::count(got.bytes, 9) >= static_cast<std::ptrdiff_t>(to.rows()));
  const std::vector<float> ones(to.elements(), 1);
  const Plain gradient =
      on_host([&](Machine& m) { return max_pool_gradient(m, from, GetParam(), ones, got.bytes); });
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_TRUE(normalised[i] > 0 || gradient.out[i] == 0) << "a gradient where ReLU was off";
  }
}

TEST_P(Pool, ANanWinsOverEveryNumber) {
  const ActivationShape from{1, 4, 8};
  std::vector<float> x = values(from.elements(), 8);
  x[(1 * 4 + 1) * 8 + 2] = std::nanf("");  // this pixel is in four windows
  const Plain got = on_host([&](Machine& m) {
    return max_pool(m, from, GetParam(), x, std::vector<float>(8, 1), std::vector<float>(8, 0));
  });
  for (std::size_t i = 0; i < got.out.size(); ++i) {
    ASSERT_EQ(std::isnan(got.out[i]), i % 8 == 2);
  }
}

TEST_P(Pool, AddsInPlaceAndElsewhere) {
  const std::vector<float> a = values(1000, 9);
  const std::vector<float> b = values(1000, 10);
  std::vector<float> sum(1000);
  std::ranges::transform(a, b, sum.begin(), std::plus());
  for (const bool in_place : {false, true}) {
    EXPECT_EQ(on_host([&](Machine& m) { return add(m, GetParam(), a, b, in_place); }).out,
              as_stored(GetParam(), sum));
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Pool, testing::Values(Dtype::kFp32, Dtype::kBf16, Dtype::kFp16),
                         [](const auto& with) { return std::string(name_of(with.param)); });

}  // namespace
}  // namespace mayfly::nn::cuda::test
