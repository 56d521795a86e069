// Layouts of weights, the optimizer and the network's input on the host's kernels.

#include <gtest/gtest.h>

#include <vector>

#include "datasets/core/augmentation.hpp"
#include "nn/optimizer.hpp"
#include "tests/unit/nn/cuda/kernels/calls.hpp"
#include "tests/unit/nn/cuda/kernels/on_host.hpp"

namespace mayfly::nn::cuda::test {
namespace {

/// A stem, filters with one and with several blocks per output channel, flat 1x1 filters, and one
/// that is not flat. Behind each is a gap for a norm's parameters.
std::vector<Filter> some_filters() {
  std::vector<Filter> filters;
  std::uint64_t offset = 3;
  std::uint64_t packed = 8;
  for (const auto& [out, in, in_packed, kernel] :
       std::vector<std::array<std::uint32_t, 4>>{{16, 3, 4, 3},
                                                 {8, 16, 16, 3},
                                                 {5, 200, 200, 3},
                                                 {40, 64, 64, 1},
                                                 {7, 3, 8, 1},
                                                 {4, 3, 4, 7},
                                                 {2, 1, 136, 3}}) {
    Filter filter;
    filter.offset = offset;
    filter.packed_offset = packed;
    filter.out_channels = out;
    filter.in_channels = in;
    filter.packed_channels = in_packed;
    filter.kernel = kernel;
    filters.push_back(filter);
    offset += std::uint64_t{out} * in * kernel * kernel + 2 * out;
    packed += (std::uint64_t{out} * in_packed * kernel * kernel + 15) / 8 * 8;
  }
  return filters;
}

struct Sizes {
  std::size_t flat;
  std::size_t packed;
};
Sizes sizes_of(const std::vector<Filter>& filters) {
  const Filter& last = filters.back();
  const std::size_t taps = std::size_t{last.kernel} * last.kernel;
  return {last.offset + last.out_channels * last.in_channels * taps + 5,
          last.packed_offset + last.out_channels * last.packed_channels * taps + 5};
}

template <typename Visit>
void for_each_weight(const Filter& f, const Visit& visit) {
  const std::size_t taps = std::size_t{f.kernel} * f.kernel;
  for (std::size_t o = 0; o < f.out_channels; ++o) {
    for (std::size_t tap = 0; tap < taps; ++tap) {
      for (std::size_t i = 0; i < f.packed_channels; ++i) {
        const std::size_t flat = f.offset + (o * f.in_channels + i) * taps + tap;
        visit(i < f.in_channels, flat, f.packed_offset + (o * taps + tap) * f.packed_channels + i);
      }
    }
  }
}

class Parameters : public testing::TestWithParam<Dtype> {};

TEST_P(Parameters, ArePackedForCudnnAndTheirGradientsBroughtBack) {
  const std::vector<Filter> filters = some_filters();
  const Sizes sizes = sizes_of(filters);
  const std::vector<float> flat = random_values(sizes.flat, 1);
  const std::vector<float> gradient = as_stored(GetParam(), random_values(sizes.packed, 2));
  for (const auto& [first, last] :
       {std::pair<std::size_t, std::size_t>{0, filters.size()}, {2, 5}, {6, 7}, {3, 3}}) {
    std::vector<float> packed(sizes.packed, 7);
    std::vector<float> flat_gradient(sizes.flat, 7);
    for (std::size_t f = first; f < last; ++f) {
      for_each_weight(filters[f], [&](bool exists, std::size_t at, std::size_t packed_at) {
        packed[packed_at] = exists ? flat[at] : 0;
        if (exists) {
          flat_gradient[at] = gradient[packed_at];
        }
      });
    }
    const FilterResult got = on_host([&, first = first, last = last](Machine& m) {
      return move_filters(m, filters, GetParam(), flat, gradient, first, last);
    });
    EXPECT_EQ(got.packed, as_stored(GetParam(), packed));
    EXPECT_EQ(got.flat_gradient, flat_gradient);
  }
}

TEST_P(Parameters, AreBroughtBackWithoutTheScale) {
  constexpr float kScale = 0x1p24F;
  const std::vector<Filter> filters = some_filters();
  const Sizes sizes = sizes_of(filters);
  const std::vector<float> flat = random_values(sizes.flat, 1);
  const std::vector<float> gradient = random_values(sizes.packed, 2);
  const auto moved = [&](float scale) {
    return on_host([&](Machine& m) {
             return move_filters(m, filters, GetParam(), flat, gradient, 0, filters.size(), scale);
           })
        .flat_gradient;
  };
  const std::vector<float> plain = moved(1);
  const std::vector<float> scaled = moved(kScale);
  const std::vector<float> untouched(sizes.flat, 7);
  for (std::size_t i = 0; i < sizes.flat; ++i) {
    ASSERT_EQ(scaled[i], plain[i] == untouched[i] ? 7 : plain[i] / kScale);
  }
}

TEST_P(Parameters, ImagesGetAFourthChannelOfZeros) {
  const std::vector<float> images = random_values(3 * 3 * 49, 3);
  const Plain got = on_host([&](Machine& m) { return store_images(m, 3, 7, GetParam(), images); });
  for (std::size_t i = 0; i < got.out.size(); ++i) {
    const std::size_t channel = i % 4;
    const std::size_t image = i / 4 / 49;
    const float value = channel == 3 ? 0 : images[(image * 3 + channel) * 49 + i / 4 % 49];
    ASSERT_EQ(got.out[i], as_stored(GetParam(), {value})[0]);
  }
}

TEST_P(Parameters, ResidentImagesAreAugmentedAsOnTheCpu) {
  const datasets::Normaliser normaliser({0.49F, 0.48F, 0.45F}, {0.25F, 0.24F, 0.26F});
  GatherInput input;
  input.width = 13;
  input.seed = 42;
  const std::size_t size = 3 * 13 * 13;
  for (std::size_t i = 0; i < 20 * size; ++i) {
    input.pixels.push_back(static_cast<std::uint8_t>(mix64(i)));
  }
  for (const auto& row : normaliser.table()) {
    input.table.insert(input.table.end(), row.begin(), row.end());
  }
  for (std::uint64_t i = 0; i < 50; ++i) {
    input.samples.push_back({i * 7 % 20, i / 20});  // the same sample in several epochs
  }
  for (const bool augment : {false, true}) {
    input.augment = augment;
    const Plain got = on_host([&](Machine& m) { return gather_images(m, input, GetParam()); });
    HostMachine machine;
    for (std::size_t n = 0; n < input.samples.size(); ++n) {
      const SampleDraw& sample = input.samples[n];
      std::vector<float> image(size);
      const datasets::Augmentation draw =
          augment ? datasets::draw_augmentation(42, sample.epoch, sample.sample)
                  : datasets::Augmentation{};
      normaliser.apply(draw, 13, std::span(input.pixels).subspan(sample.sample * size, size),
                       image);
      const std::vector<float> want = store_images(machine, 1, 13, GetParam(), image).out;
      const auto begin = got.out.begin() + static_cast<std::ptrdiff_t>(n * want.size());
      ASSERT_TRUE(std::equal(want.begin(), want.end(), begin)) << "sample " << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Parameters,
                         testing::Values(Dtype::kFp32, Dtype::kBf16, Dtype::kFp16),
                         [](const auto& with) { return std::string(name_of(with.param)); });

TEST(SgdKernel, UpdatesToTheBitsOfTheOptimizer) {
  const SgdOptions options{0.9F, 5e-4F};
  for (const std::size_t count : {1, 7, 8, 9, 4099}) {
    const std::vector<float> gradient = random_values(count, 1);
    std::vector<float> parameters = random_values(count, 2);
    std::vector<float> momentum = random_values(count, 3);
    const SgdResult got = on_host(
        [&](Machine& m) { return update(m, options, 0.05F, gradient, parameters, momentum); });
    nn::sgd_update(options, 0.05F, gradient, parameters, momentum);
    EXPECT_TRUE(same_bits(got.parameters, parameters));
    EXPECT_TRUE(same_bits(got.momentum, momentum));
  }
}

/// Half a unit in the last place is rounded to the even neighbour, and a carry raises the exponent.
TEST(Bf16, IsRoundedToNearestEven) {
  const std::vector<float> values{1.00390625F,   1.01171875F, 1.0039063F, -1.01171875F,
                                  3.3961776e38F, 1e-40F,      -0.0F,      65535.0F};
  const Plain got = on_host([&](Machine& m) {
    return add(m, Dtype::kBf16, std::vector<float>(8, -0.0F), values, false);
  });
  const Plain stored = on_host([&](Machine& m) {
    return store_images(m, 8, 1, Dtype::kBf16, [&] {
      std::vector<float> images(24, 0);
      for (std::size_t i = 0; i < 8; ++i) {
        images[3 * i] = values[i];
      }
      return images;
    }());
  });
  const std::vector<float> want = as_stored(Dtype::kBf16, values);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(stored.out[4 * i], want[i]);
    EXPECT_EQ(got.out[i], want[i]);
  }
}

}  // namespace
}  // namespace mayfly::nn::cuda::test
