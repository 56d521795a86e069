// Compares every bit of the kernels of a training step on the device with the same bodies on the
// CPU, twice, with random inputs and with outputs that contain garbage before.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "base/random.hpp"
#include "base/time.hpp"
#include "tests/gpu/device_memory.hpp"
#include "tests/unit/nn/cuda/kernels/calls.hpp"

namespace mayfly::nn::cuda::test {
namespace {

namespace gpu = collectives::gpu_test;

class DeviceMachine final : public Machine {
 public:
  [[nodiscard]] const Kernels& kernels() const override { return device_kernels(); }
  [[nodiscard]] Stream stream() const override { return stream_.handle(); }
  void* allocate(std::size_t bytes) override { return gpu::allocate_on_device(bytes); }
  void free(void* memory) override {
    stream_.wait();
    gpu::free_on_device(memory);
  }
  void write(void* to, const void* from, std::size_t bytes) override {
    gpu::copy_to_device(to, from, bytes);
  }
  void read(void* to, const void* from, std::size_t bytes) override {
    stream_.wait();
    gpu::copy_from_device(to, from, bytes);
  }
  void wait() const { stream_.wait(); }

 private:
  gpu::Stream stream_;
};

/// Expects that the device's result equals the host's, twice.
template <typename Call>
void expect_same_bits(const Call& call) {
  DeviceMachine device;
  HostMachine host;
  const auto first = call(device);
  EXPECT_TRUE(same_results(first, call(host))) << "the device differs from the CPU";
  EXPECT_TRUE(same_results(first, call(device))) << "the device differs from itself";
}

class DeviceNnKernels : public testing::TestWithParam<Dtype> {
 protected:
  void SetUp() override { RecordProperty("seed", fmt::format("{}", seed_)); }
  [[nodiscard]] std::uint64_t seed() const { return seed_; }

  // The shapes of real networks, and odd ones.
  [[nodiscard]] static std::vector<ActivationShape> shapes() {
    return {{2, 7, 24},  {3, 1, 2048}, {5, 37, 8},    {128, 32, 16},
            {64, 8, 64}, {4, 112, 64}, {8, 14, 1024}, {1, 3, 160}};
  }

 private:
  std::uint64_t seed_ = std::random_device{}();
};

TEST_P(DeviceNnKernels, AllLoad) {
  EXPECT_EQ(device_kernels().load(), 0);
}

TEST_P(DeviceNnKernels, NormaliseToTheBitsOfTheHost) {
  for (const ActivationShape& shape : shapes()) {
    for (const int residual : {0, 1, 2}) {
      NormInput input = random_norm_input(shape, GetParam(), seed());
      input.in_place = residual == 1;
      if (residual == 0) {
        input.residual.clear();
      } else if (residual == 2) {
        input.residual_scale = random_values(shape.channels, seed() + 8);
        input.residual_shift = random_values(shape.channels, seed() + 9);
      }
      expect_same_bits([&](Machine& m) { return norm_forward(m, input); });
    }
  }
}

TEST_P(DeviceNnKernels, InferToTheBitsOfTheHost) {
  const NormInput input = random_norm_input({3, 9, 48}, GetParam(), seed());
  const std::vector<float> mean = random_values(48, seed() + 1);
  const std::vector<float> variance(48, 0.3F);
  expect_same_bits([&](Machine& m) { return norm_inference(m, input, mean, variance); });
}

TEST_P(DeviceNnKernels, DeriveNormsToTheBitsOfTheHost) {
  HostMachine host;
  for (const ActivationShape& shape : shapes()) {
    NormInput input = random_norm_input(shape, GetParam(), seed());
    const std::vector<std::uint8_t> mask = norm_forward(host, input).mask;
    input.in_place = true;
    expect_same_bits([&](Machine& m) { return norm_backward(m, input, mask, MaskedAt::kSums); });
    input.addend.clear();
    input.in_place = false;
    expect_same_bits([&](Machine& m) { return norm_backward(m, input, mask, MaskedAt::kApply); });
  }
}

TEST_P(DeviceNnKernels, MoveShortcutsToTheBitsOfTheHost) {
  for (const ActivationShape& from : {ActivationShape{3, 8, 16}, {2, 7, 32}, {16, 32, 16}}) {
    const std::size_t half = (from.width + 1) / 2;
    const std::vector<float> x = random_values(from.elements(), seed());
    const std::vector<float> out =
        random_values(from.images * half * half * 2 * from.channels, seed() + 1);
    expect_same_bits([&](Machine& m) { return shortcut(m, from, GetParam(), x); });
    expect_same_bits([&](Machine& m) { return shortcut_gradient(m, from, GetParam(), out); });
    expect_same_bits([&](Machine& m) { return add(m, GetParam(), out, out, true); });
  }
}

TEST_P(DeviceNnKernels, PoolToTheBitsOfTheHost) {
  HostMachine host;
  for (const ActivationShape& from : {ActivationShape{3, 8, 16}, {2, 7, 24}, {4, 112, 64}}) {
    const std::size_t half = (from.width + 1) / 2;
    const std::vector<float> x = random_values(from.elements(), seed());
    const std::vector<float> scale = random_values(from.channels, seed() + 1);
    const std::vector<float> shift = random_values(from.channels, seed() + 2);
    expect_same_bits([&](Machine& m) { return max_pool(m, from, GetParam(), x, scale, shift); });
    const std::vector<std::uint8_t> places =
        max_pool(host, from, GetParam(), x, scale, shift).bytes;
    const std::vector<float> out = random_values(from.images * half * half * from.channels, seed());
    expect_same_bits(
        [&](Machine& m) { return max_pool_gradient(m, from, GetParam(), out, places); });
  }
}

TEST_P(DeviceNnKernels, ClassifyToTheBitsOfTheHost) {
  for (const ClassifierShape& shape :
       {ClassifierShape{128, 8, 64, 10}, {67, 3, 72, 100}, {32, 7, 512, 1000}}) {
    ClassifierInput input = random_classifier_input(shape, GetParam(), seed());
    expect_same_bits([&](Machine& m) { return classify(m, input); });
    input.loss = {0, shape.images / 2};
    expect_same_bits([&](Machine& m) { return classify(m, input); });
  }
}

TEST_P(DeviceNnKernels, PackFiltersToTheBitsOfTheHost) {
  std::vector<Filter> filters(4);
  filters[0] = {0, 0, 64, 3, 4, 7, 0, 0};
  filters[1] = {9408, 12544, 64, 64, 64, 1, 0, 0};
  filters[2] = {13504, 16640, 96, 192, 192, 3, 0, 0};
  filters[3] = {179392, 182528, 16, 3, 4, 3, 0, 0};
  const std::vector<float> flat = random_values(179392 + 432, seed());
  const std::vector<float> packed = random_values(182528 + 576, seed() + 1);
  expect_same_bits([&](Machine& m) {
    return move_filters(m, filters, GetParam(), flat, packed, 0, filters.size());
  });
  expect_same_bits(
      [&](Machine& m) { return move_filters(m, filters, GetParam(), flat, packed, 1, 3); });
}

TEST_P(DeviceNnKernels, UpdateToTheBitsOfTheHost) {
  for (const std::size_t count : {1, 4099, 1'000'003}) {
    const std::vector<float> gradient = random_values(count, seed());
    const std::vector<float> parameters = random_values(count, seed() + 1);
    const std::vector<float> momentum = random_values(count, seed() + 2);
    expect_same_bits(
        [&](Machine& m) { return update(m, SgdOptions{}, 0.1F, gradient, parameters, momentum); });
  }
}

TEST_P(DeviceNnKernels, AugmentToTheBitsOfTheHost) {
  const std::vector<float> images = random_values(std::size_t{64} * 3 * 32 * 32, seed());
  expect_same_bits([&](Machine& m) { return store_images(m, 64, 32, GetParam(), images); });
  GatherInput input;
  input.seed = seed();
  const CounterRandom random(seed());
  for (std::size_t i = 0; i < std::size_t{100} * 3 * 32 * 32; ++i) {
    input.pixels.push_back(static_cast<std::uint8_t>(random.bits(i)));
  }
  input.table = random_values(3 * 256, seed() + 1);
  for (std::uint64_t i = 0; i < 300; ++i) {
    input.samples.push_back({i * 7 % 100, i / 100});
  }
  for (const bool augment : {false, true}) {
    input.augment = augment;
    expect_same_bits([&](Machine& m) { return gather_images(m, input, GetParam()); });
  }
}

/// All cases of rounding to 16 bits, with the device's own instructions.
TEST_P(DeviceNnKernels, RoundToTheBitsOfTheHost) {
  constexpr std::uint32_t kWidth = 64;
  std::vector<float> images(std::size_t{32} * 3 * kWidth * kWidth);
  const CounterRandom random(seed());
  for (std::size_t i = 0; i < images.size(); ++i) {
    // Ties and their neighbours between fp16's numbers first, then patterns of every kind.
    const std::size_t tie = i / 3 * 0x1000 + 0x33000000 - 1 + i % 3;
    const auto pattern = tie < 0x47900000 ? static_cast<std::uint32_t>(tie)
                                          : static_cast<std::uint32_t>(random.bits(i));
    images[i] = std::bit_cast<float>(pattern);
    images[i] = std::isnan(images[i]) ? NAN : images[i];
  }
  expect_same_bits([&](Machine& m) { return store_images(m, 32, kWidth, GetParam(), images); });
}

// Records speeds without checking them: passes over a large activation of a ResNet-50, batch 256.
TEST_P(DeviceNnKernels, SpeedIsRecorded) {
  constexpr int kRounds = 20;
  const ActivationShape shape{256, 56, 256};
  const std::size_t bytes = shape.elements() * bytes_of(GetParam());
  const gpu::Stream stream;
  const gpu::DeviceArray<std::byte> x(bytes), y(bytes), z(bytes);
  gpu::DeviceArray<std::byte> mask(mask_bytes(shape));
  gpu::DeviceArray<std::byte> sums(norm_sum_bytes(shape));
  gpu::DeviceArray<std::byte> memory(norm_factor_bytes(shape.channels));
  const NormFactors factors = norm_factors_at(memory.data(), shape.channels);
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
  const Kernels& k = device_kernels();
  auto* const sum_data = reinterpret_cast<double*>(sums.data());
  auto* const mask_data = reinterpret_cast<std::uint8_t*>(mask.data());
  time("norm_sums_ms",
       [&] { return k.norm_sums(shape, GetParam(), x.data(), sum_data, stream.handle()); });
  NormApply apply;
  apply.x = x.data();
  apply.scale = factors.scale;
  apply.shift = factors.shift;
  apply.residual = y.data();
  apply.out = z.data();
  apply.mask = mask_data;
  time("norm_apply_ms", [&] { return k.norm_apply(shape, GetParam(), apply, stream.handle()); });
  NormGradientSums gradient{y.data(), nullptr, mask_data, x.data(), factors.mean, nullptr};
  time("norm_gradient_sums_ms", [&] {
    return k.norm_gradient_sums(shape, GetParam(), gradient, sum_data, stream.handle());
  });
  const NormGradientApply derive{y.data(), mask_data, x.data(), z.data(), nullptr};
  time("norm_gradient_apply_ms",
       [&] { return k.norm_gradient_apply(shape, GetParam(), derive, factors, stream.handle()); });
}

INSTANTIATE_TEST_SUITE_P(Dtypes, DeviceNnKernels,
                         testing::Values(Dtype::kFp32, Dtype::kBf16, Dtype::kFp16),
                         [](const auto& with) { return std::string(name_of(with.param)); });

}  // namespace
}  // namespace mayfly::nn::cuda::test
