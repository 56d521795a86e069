// Compares every bit of the exact sum's kernels on the device with collectives/plan on the CPU.

#include "collectives/nccl/device_kernels.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <random>
#include <vector>

#include "base/time.hpp"
#include "collectives/plan/exact_sum.hpp"
#include "tests/gpu/device_memory.hpp"

namespace mayfly::collectives {
namespace {

using device_kernels::Blocks;
using device_kernels::QuantizeFlags;
using gpu_test::DeviceArray;
using gpu_test::Stream;

constexpr std::uint32_t kMicrobatches = 6;

struct Case {
  BlockLayout layout{std::vector<std::size_t>{1, 1024, 1025, 64, 3000, 10, 100'000, 7}};
  std::vector<std::vector<float>> gradients;
  std::vector<std::int32_t> exponents;

  // Tensors of very different sizes; some blocks overflow if `tight`.
  Case(unsigned seed, bool tight) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    for (std::uint32_t m = 0; m < kMicrobatches; ++m) {
      std::vector<float> gradient(layout.element_count());
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        const double z = normal(random);
        gradient[i] =
            static_cast<float>(std::ldexp(z * std::fabs(z), static_cast<int>(i % 40) - 30));
      }
      gradients.push_back(std::move(gradient));
    }
    for (std::size_t b = 0; b < layout.block_count(); ++b) {
      exponents.push_back(tight ? static_cast<std::int32_t>(b % 24) - 12 : 14);
    }
  }
  [[nodiscard]] std::vector<std::uint32_t> offsets() const {
    std::vector<std::uint32_t> out;
    for (std::size_t b = 0; b < layout.block_count(); ++b) {
      out.push_back(static_cast<std::uint32_t>(layout.offset(b)));
    }
    out.push_back(static_cast<std::uint32_t>(layout.element_count()));
    return out;
  }
};

struct Sums {
  std::vector<std::int32_t> sums, observed;
  QuantizeFlags flags;
  std::vector<bool> clean;  // by block: never overflowed
};

Sums on_cpu(const Case& c, const std::vector<std::vector<float>>& gradients) {
  Sums out;
  out.sums.resize(c.layout.element_count());
  out.observed.assign(c.layout.block_count(), kUnsetExponent);
  out.clean.assign(c.layout.block_count(), true);
  for (const std::vector<float>& gradient : gradients) {
    for (std::size_t b = 0; b < c.layout.block_count(); ++b) {
      std::int32_t observed = 0;
      const QuantizeResult result =
          quantize_add(std::span(gradient).subspan(c.layout.offset(b), c.layout.size(b)),
                       c.exponents[b], magnitude_bits(kMicrobatches),
                       std::span(out.sums).subspan(c.layout.offset(b), c.layout.size(b)), observed);
      out.observed[b] = std::max(out.observed[b], observed);
      out.flags.overflows += result.overflow ? 1 : 0;
      out.flags.nonfinite += result.nonfinite ? 1 : 0;
      out.clean[b] = out.clean[b] && !result.overflow;
    }
  }
  return out;
}

Sums on_device(const Case& c, const std::vector<std::vector<float>>& gradients) {
  const Stream stream;
  DeviceArray<std::uint32_t> offsets(c.offsets());
  DeviceArray<std::int32_t> exponents(c.exponents);
  // Arbitrary values: the first microbatch must overwrite them, not add to them.
  DeviceArray<std::int32_t> sums(std::vector<std::int32_t>(c.layout.element_count(), 0x5a5a5a5a));
  DeviceArray<std::int32_t> observed(std::vector<std::int32_t>(c.layout.block_count(), 0x5a5a));
  DeviceArray<QuantizeFlags> flags(std::vector<QuantizeFlags>(1));
  const auto count = static_cast<std::uint32_t>(c.layout.block_count());
  for (std::size_t m = 0; m < gradients.size(); ++m) {
    DeviceArray<float> gradient(gradients[m]);
    // In two buckets, like a step.
    for (const auto& [first, last] : {std::pair(0U, count / 3), std::pair(count / 3, count)}) {
      const Blocks blocks{offsets.data(), exponents.data(), first, last};
      EXPECT_EQ(
          device_kernels::quantize(gradient.data(), blocks, magnitude_bits(kMicrobatches), m > 0,
                                   sums.data(), observed.data(), flags.data(), stream.handle()),
          0);
    }
    stream.wait();
  }
  return {sums.values(), observed.values(), flags.values().front(), {}};
}

void expect_same(const Case& c, const Sums& device, const Sums& cpu) {
  EXPECT_EQ(device.observed, cpu.observed);
  EXPECT_EQ(device.flags.overflows, cpu.flags.overflows);
  EXPECT_EQ(device.flags.nonfinite, cpu.flags.nonfinite);
  for (std::size_t b = 0; b < c.layout.block_count(); ++b) {
    for (std::size_t i = c.layout.offset(b); cpu.clean[b] && i < c.layout.offset(b + 1); ++i) {
      ASSERT_EQ(device.sums[i], cpu.sums[i]) << "element " << i << " of block " << b;
    }
  }
}

TEST(DeviceKernels, QuantizeToTheBitsOfTheCpu) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  for (const bool tight : {false, true}) {
    const Case c(seed, tight);
    const Sums cpu = on_cpu(c, c.gradients);
    EXPECT_EQ(cpu.flags.overflows > 0, tight);
    expect_same(c, on_device(c, c.gradients), cpu);
  }
}

TEST(DeviceKernels, AddFloatsToTheBitsOfTheCpu) {
  const Case c(3, false);
  const Stream stream;
  DeviceArray<std::uint32_t> offsets(c.offsets());
  DeviceArray<float> sums(std::vector<float>(c.layout.element_count(), NAN));
  DeviceArray<QuantizeFlags> flags(std::vector<QuantizeFlags>(1));
  const Blocks blocks{offsets.data(), nullptr, 0,
                      static_cast<std::uint32_t>(c.layout.block_count())};
  std::vector<float> expected(c.layout.element_count(), 0.0F);
  for (std::size_t m = 0; m < c.gradients.size(); ++m) {
    DeviceArray<float> gradient(c.gradients[m]);
    EXPECT_EQ(device_kernels::add_floats(gradient.data(), blocks, m > 0, sums.data(), flags.data(),
                                         stream.handle()),
              0);
    stream.wait();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] += c.gradients[m][i];
    }
  }
  EXPECT_EQ(sums.values(), expected);
  EXPECT_EQ(flags.values().front().nonfinite, 0U);
}

TEST(DeviceKernels, FlagWhatIsNotFinite) {
  Case c(1, false);
  c.gradients[2][5000] = std::numeric_limits<float>::quiet_NaN();
  c.gradients[4][0] = -std::numeric_limits<float>::infinity();
  const Sums cpu = on_cpu(c, c.gradients);
  EXPECT_EQ(cpu.flags.nonfinite, 2U);
  expect_same(c, on_device(c, c.gradients), cpu);
}

TEST(DeviceKernels, DequantizeToTheBitsOfTheCpu) {
  const Case c(3, false);
  const Sums cpu = on_cpu(c, c.gradients);
  const Stream stream;
  DeviceArray<std::uint32_t> offsets(c.offsets());
  DeviceArray<std::int32_t> exponents(c.exponents);
  DeviceArray<std::int32_t> sums(cpu.sums);
  DeviceArray<float> out(cpu.sums.size());
  const Blocks blocks{offsets.data(), exponents.data(), 0,
                      static_cast<std::uint32_t>(c.layout.block_count())};
  const int bits = magnitude_bits(kMicrobatches);
  ASSERT_EQ(device_kernels::dequantize(sums.data(), blocks, bits, 1.0F / 768.0F, out.data(),
                                       stream.handle()),
            0);
  stream.wait();
  const std::vector<float> got = out.values();
  std::vector<float> want(got.size());
  for (std::size_t b = 0; b < c.layout.block_count(); ++b) {
    dequantize(std::span(cpu.sums).subspan(c.layout.offset(b), c.layout.size(b)), c.exponents[b],
               bits, 1.0F / 768.0F, std::span(want).subspan(c.layout.offset(b), c.layout.size(b)));
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(want[i])) << i;
  }
}

TEST(DeviceKernels, OrderFloatsAsReduceDoes) {
  const Stream stream;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> ascending{-infinity, -2.0F, -1e-40F,  -0.0F, 0.0F,
                                     1e-40F,    2.0F,  infinity, nan};
  DeviceArray<float> data(ascending);
  ASSERT_EQ(device_kernels::to_ordered_integers(data.data(), ascending.size(), stream.handle()), 0);
  stream.wait();
  const std::vector<float> ordered = data.values();
  for (std::size_t i = 1; i < ordered.size(); ++i) {
    EXPECT_LT(std::bit_cast<std::int32_t>(ordered[i - 1]), std::bit_cast<std::int32_t>(ordered[i]));
  }
  ASSERT_EQ(device_kernels::from_ordered_integers(data.data(), ascending.size(), stream.handle()),
            0);
  stream.wait();
  const std::vector<float> back = data.values();
  for (std::size_t i = 0; i < back.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(back[i]), std::bit_cast<std::uint32_t>(ascending[i]));
  }
}

// Records a speed without checking it: 100 MB of gradients, as of a ResNet-50.
TEST(DeviceKernels, SpeedIsRecorded) {
  constexpr std::size_t kElements = 25'557'032;
  constexpr int kRounds = 50;
  const BlockLayout layout(std::vector<std::size_t>{kElements});
  std::vector<std::uint32_t> cut;
  for (std::size_t b = 0; b < layout.block_count(); ++b) {
    cut.push_back(static_cast<std::uint32_t>(layout.offset(b)));
  }
  cut.push_back(kElements);
  const Stream stream;
  DeviceArray<std::uint32_t> offsets(cut);
  DeviceArray<std::int32_t> exponents(std::vector<std::int32_t>(layout.block_count(), 3));
  DeviceArray<float> gradient(std::vector<float>(kElements, 0.25F));
  DeviceArray<std::int32_t> sums(kElements);
  DeviceArray<std::int32_t> observed(layout.block_count());
  DeviceArray<QuantizeFlags> flags(std::vector<QuantizeFlags>(1));
  const Blocks blocks{offsets.data(), exponents.data(), 0,
                      static_cast<std::uint32_t>(layout.block_count())};
  const auto time = [&](const char* name, const auto& launch) {
    ASSERT_EQ(launch(), 0);
    stream.wait();
    const Instant start = monotonic_now();
    for (int i = 0; i < kRounds; ++i) {
      ASSERT_EQ(launch(), 0);
    }
    stream.wait();
    RecordProperty(name, fmt::format("{:.4f}", to_ms(monotonic_now() - start) / kRounds));
  };
  for (const bool add : {false, true}) {
    time(add ? "quantize_add_ms" : "quantize_store_ms", [&] {
      return device_kernels::quantize(gradient.data(), blocks, 20, add, sums.data(),
                                      observed.data(), flags.data(), stream.handle());
    });
  }
  time("dequantize_ms", [&] {
    return device_kernels::dequantize(sums.data(), blocks, 20, 1.0F, gradient.data(),
                                      stream.handle());
  });
}

}  // namespace
}  // namespace mayfly::collectives
