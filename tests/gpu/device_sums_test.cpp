// Compares every bit of sums in the memory of the device with sums on the CPU. The stream that
// produces the gradients is slow.

#include "collectives/nccl/device_sums.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "collectives/transport_module.hpp"
#include "tests/gpu/device_memory.hpp"
#include "tests/unit/collectives/nccl/host_sum_calls.hpp"

namespace mayfly::collectives {
namespace {

using gpu_test::DeviceArray;
using gpu_test::Stream;

constexpr std::uint32_t kMicrobatches = 4;
constexpr int kDevice = 0;

std::unique_ptr<SumCalls> device_calls() {
  return load_transport_module("nccl").value()->make_sum_calls(kDevice).value();
}

/// A vector of odd sizes in two buckets, later blocks first.
struct Vector {
  Vector() {
    const BlockLayout layout({1, 1024, 1025, 64, 3000, 10, 100'000, 7});
    for (std::size_t b = 0; b <= layout.block_count(); ++b) {
      offsets.push_back(static_cast<std::uint32_t>(
          b < layout.block_count() ? layout.offset(b) : layout.element_count()));
    }
    const auto count = static_cast<std::uint32_t>(layout.block_count());
    buckets = {{count / 2, count}, {0, count / 2}};
    std::mt19937 random(std::random_device{}());
    std::normal_distribution<float> normal;
    for (std::uint32_t m = 0; m < kMicrobatches; ++m) {
      gradients.emplace_back(layout.element_count());
      for (float& x : gradients.back()) {
        x = normal(random);
      }
    }
    exponents.assign(count, 4);
  }

  std::vector<std::uint32_t> offsets;
  std::vector<BlockRange> buckets;
  std::vector<std::vector<float>> gradients;
  std::vector<std::int32_t> exponents;
};

DeviceSumsShape shape_of(const Vector& vector, bool exact) {
  return {vector.offsets, exact, magnitude_bits(kMicrobatches)};
}

void add_all(const Vector& vector, DeviceSums& sums, std::uint32_t microbatch) {
  for (std::size_t b = 0; b < vector.buckets.size(); ++b) {
    sums.add(b, vector.buckets[b], microbatch == 0);
  }
}

std::vector<std::uint32_t> fetched(const Vector& vector, DeviceSums& sums) {
  for (std::size_t b = 0; b < vector.buckets.size(); ++b) {
    (void)sums.stage(b, vector.buckets[b]);
  }
  for (const BlockRange& blocks : vector.buckets) {
    sums.fetch(blocks);  // after the copies, on the same stream
  }
  sums.wait_until_fetched();
  return {sums.fetched().begin(), sums.fetched().end()};
}

std::vector<std::uint32_t> on_cpu(const Vector& vector, bool exact) {
  test::HostSumCalls calls;
  std::vector<float> place(vector.offsets.back());
  const auto sums =
      DeviceSums::make(calls, shape_of(vector, exact), {place.data(), DeviceStream(&calls)})
          .value();
  sums->clear(exact ? std::span(vector.exponents) : std::span<const std::int32_t>(), 2);
  for (std::uint32_t m = 0; m < kMicrobatches; ++m) {
    place = vector.gradients[m];
    add_all(vector, *sums, m);
  }
  return fetched(vector, *sums);
}

TEST(DeviceSums, AreThoseOfTheCpuBehindASlowEngine) {
  gpu_test::use_device();
  const Vector vector;
  for (const bool exact : {true, false}) {
    const std::unique_ptr<SumCalls> calls = device_calls();
    Stream engine;
    const DeviceArray<float> place(vector.offsets.back());
    std::vector<std::unique_ptr<DeviceArray<float>>> gradients;
    for (const std::vector<float>& gradient : vector.gradients) {
      gradients.push_back(std::make_unique<DeviceArray<float>>(gradient));
    }
    const auto sums =
        DeviceSums::make(*calls, shape_of(vector, exact), {place.data(), engine.handle()}).value();
    for (int step = 0; step < 3; ++step) {
      sums->clear(exact ? std::span(vector.exponents) : std::span<const std::int32_t>(), 2);
      for (std::uint32_t m = 0; m < kMicrobatches; ++m) {
        engine.add_delay();
        engine.add_copy(place.data(), gradients[m]->data(), vector.offsets.back() * sizeof(float));
        add_all(vector, *sums, m);
      }
      ASSERT_EQ(fetched(vector, *sums), on_cpu(vector, exact)) << "step " << step;
      const SumFindings found = sums->find();
      EXPECT_EQ(found.overflows + found.nonfinite, 0U);
    }
  }
}

TEST(DeviceSums, TheirMeanOnTheDeviceIsThatOfTheCpu) {
  gpu_test::use_device();
  const Vector vector;
  const auto blocks = static_cast<std::uint32_t>(vector.offsets.size() - 1);
  for (const bool exact : {true, false}) {
    const std::unique_ptr<SumCalls> calls = device_calls();
    const Stream engine;
    const DeviceArray<float> place(vector.gradients[0]);
    const DeviceArray<float> mean(vector.offsets.back());
    const auto sums =
        DeviceSums::make(*calls, shape_of(vector, exact), {place.data(), engine.handle()}).value();
    sums->clear(exact ? std::span(vector.exponents) : std::span<const std::int32_t>(), 2);
    add_all(vector, *sums, 0);
    std::vector<std::uint32_t> words = fetched(vector, *sums);
    sums->take_mean(1.0F / 3, mean.data());
    engine.wait();
    std::vector<float> wanted(words.size());
    test::mean_on_host({.sums = words.data(),
                        .offsets = vector.offsets.data(),
                        .exponents = vector.exponents.data(),
                        .blocks = blocks,
                        .exact = exact,
                        .bits = magnitude_bits(kMicrobatches),
                        .scale = 1.0F / 3,
                        .mean = wanted.data()});
    EXPECT_EQ(mean.values(), wanted);
  }
}

TEST(DeviceSums, FindWhatIsNotFinite) {
  gpu_test::use_device();
  Vector vector;
  vector.gradients[0][5000] = std::numeric_limits<float>::infinity();
  for (const bool exact : {true, false}) {
    const std::unique_ptr<SumCalls> calls = device_calls();
    const Stream engine;
    const DeviceArray<float> place(vector.gradients[0]);
    const auto sums =
        DeviceSums::make(*calls, shape_of(vector, exact), {place.data(), engine.handle()}).value();
    sums->clear(exact ? std::span(vector.exponents) : std::span<const std::int32_t>(), 2);
    add_all(vector, *sums, 0);
    EXPECT_EQ(sums->find().nonfinite, 1U);
  }
}

}  // namespace
}  // namespace mayfly::collectives
