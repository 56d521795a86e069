// Sums on a device that runs its streams in any order that they allow.

#include "collectives/nccl/device_sums.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <utility>

#include "tests/unit/collectives/nccl/fake_sum_device.hpp"

namespace mayfly::collectives {
namespace {

using test::FakeSumDevice;

constexpr int kBits = 27;  // of up to 8 microbatches
constexpr std::uint64_t kSeeds = 200;

/// Two buckets of blocks, the later elements first as in a backward pass.
const std::vector<std::uint32_t> kOffsets = {0, 3, 10, 12, 30};
constexpr BlockRange kBuckets[] = {{2, 4}, {0, 2}};

std::vector<float> gradient_of(std::uint32_t microbatch) {
  std::vector<float> gradient(kOffsets.back());
  RandomStream random(CounterRandom(7).split(microbatch));
  for (float& x : gradient) {
    x = static_cast<float>(random.unit() - 0.5);
  }
  return gradient;
}

/// The sums of these microbatches as words, computed on the host.
std::vector<std::uint32_t> sums_of(const std::vector<std::uint32_t>& microbatches, bool exact,
                                   std::span<const std::int32_t> exponents) {
  std::vector<std::uint32_t> sums(kOffsets.back(), 0);
  std::vector<std::int32_t> observed(kOffsets.size());
  std::array<std::uint32_t, 2> flags{};
  for (const std::uint32_t microbatch : microbatches) {
    const std::vector<float> gradient = gradient_of(microbatch);
    test::add_on_host({.gradient = gradient.data(),
                       .sums = sums.data(),
                       .offsets = kOffsets.data(),
                       .exponents = exponents.data(),
                       .observed = observed.data(),
                       .flags = flags.data(),
                       .blocks = {0, 4},
                       .first = microbatch == microbatches.front(),
                       .exact = exact,
                       .bits = kBits});
  }
  return sums;
}

/// A worker: an engine that writes all gradients to one buffer, the sums, and a group's stream.
class Worker {
 public:
  Worker(FakeSumDevice& device, bool exact) : device_(device) {
    compute_ = device.make_stream().value();
    wire_ = device.make_stream().value();
    arrived_ = device.make_event().value();
    gradient_.resize(kOffsets.back());
    sums_ =
        DeviceSums::make(device, {kOffsets, exact, kBits}, {gradient_.data(), compute_}).value();
    if (exact) {
      exponents_.assign(kOffsets.size() - 1, 0);
    }
  }
  ~Worker() {
    sums_.reset();
    device_.destroy_event(arrived_);
    device_.destroy_stream(compute_);
    device_.destroy_stream(wire_);
  }

  void begin() {
    sums_->clear(exponents_, std::size(kBuckets));
    first_ = {true, true};
  }

  /// Queues a whole microbatch on the device, as an engine does.
  void compute(std::uint32_t microbatch) {
    for (std::size_t b = 0; b < std::size(kBuckets); ++b) {
      device_.give(compute_, [this, b, part = gradient_of(microbatch)] {
        for (std::uint32_t i = kOffsets[kBuckets[b].first]; i < kOffsets[kBuckets[b].last]; ++i) {
          gradient_[i] = part[i];
        }
      });
      sums_->add(b, kBuckets[b], std::exchange(first_[b], false));
    }
  }

  /// All-reduces all buckets with a member whose words are all `other`.
  void exchange(std::uint32_t other) {
    for (std::size_t b = 0; b < std::size(kBuckets); ++b) {
      const std::span<std::uint32_t> copy = sums_->stage(b, kBuckets[b]);
      (void)device_.record(arrived_, sums_->staging_stream());  // DeviceGroup::follow()
      (void)device_.hold(wire_, arrived_);
      device_.give(wire_, [copy, other] {
        for (std::uint32_t& word : copy) {
          word += other;
        }
      });
    }
    (void)device_.wait_for(wire_);
  }

  std::vector<std::uint32_t> fetch() {
    for (const BlockRange& blocks : kBuckets) {
      sums_->fetch(blocks);
    }
    sums_->wait_until_fetched();
    return {sums_->fetched().begin(), sums_->fetched().end()};
  }

  /// Queues the mean of the sums in the copies; `then` receives it in the order of the stream.
  void take_mean(float scale, std::function<void(std::vector<float>)> then) {
    sums_->take_mean(scale, mean_.data());
    device_.give(compute_, [this, then = std::move(then)] { then(mean_); });
  }

  DeviceSums& sums() { return *sums_; }
  std::vector<std::int32_t>& exponents() { return exponents_; }
  float& gradient(std::size_t i) { return gradient_[i]; }

 private:
  FakeSumDevice& device_;
  DeviceStream compute_ = nullptr;
  DeviceStream wire_ = nullptr;
  DeviceEvent arrived_ = nullptr;
  std::vector<float> gradient_;
  std::vector<float> mean_ = std::vector<float>(kOffsets.back());
  std::vector<std::int32_t> exponents_;
  std::array<bool, 2> first_{};
  std::unique_ptr<DeviceSums> sums_;
};

std::vector<std::uint32_t> plus(std::vector<std::uint32_t> words, std::uint32_t other) {
  for (std::uint32_t& word : words) {
    word += other;
  }
  return words;
}

TEST(DeviceSums, AreThoseOfTheHostInWhateverOrderStreamsRun) {
  for (const bool exact : {true, false}) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      FakeSumDevice device(seed);
      Worker worker(device, exact);
      for (std::uint32_t step = 0; step < 3; ++step) {
        const std::vector<std::uint32_t> microbatches = {step, step + 1, step + 2};
        worker.begin();
        for (const std::uint32_t microbatch : microbatches) {
          worker.compute(microbatch);
        }
        worker.exchange(step);
        ASSERT_EQ(worker.fetch(), plus(sums_of(microbatches, exact, worker.exponents()), step))
            << "seed " << seed << ", step " << step;
      }
    }
  }
}

/// The mean of summed words, computed on the host.
std::vector<float> mean_of(std::vector<std::uint32_t> sums, bool exact, float scale,
                           std::span<const std::int32_t> exponents) {
  std::vector<float> mean(sums.size());
  test::mean_on_host({.sums = sums.data(),
                      .offsets = kOffsets.data(),
                      .exponents = exponents.data(),
                      .blocks = static_cast<std::uint32_t>(kOffsets.size() - 1),
                      .exact = exact,
                      .bits = kBits,
                      .scale = scale,
                      .mean = mean.data()});
  return mean;
}

TEST(DeviceSums, AMeanOnTheDeviceIsThatOfItsStepWhateverFollows) {
  constexpr float kScale = 1.0F / 3;
  for (const bool exact : {true, false}) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      FakeSumDevice device(seed);
      Worker worker(device, exact);
      std::vector<std::vector<float>> found;
      std::vector<std::vector<float>> wanted;
      for (std::uint32_t step = 0; step < 3; ++step) {
        if (exact) {
          worker.exponents().assign(kOffsets.size() - 1, static_cast<std::int32_t>(step));
        }
        worker.begin();  // while the mean of the previous step is still queued
        worker.compute(step);
        worker.exchange(step);
        worker.take_mean(kScale, [&found](std::vector<float> mean) { found.push_back(mean); });
        wanted.push_back(mean_of(plus(sums_of({step}, exact, worker.exponents()), step), exact,
                                 kScale, worker.exponents()));
      }
      (void)worker.sums().find();  // waits for all work on the compute stream
      ASSERT_EQ(found, wanted) << "seed " << seed;
    }
  }
}

TEST(DeviceSums, OutliveAGroupThatBroke) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeSumDevice device(seed);
    Worker worker(device, true);
    worker.begin();
    worker.compute(1);
    worker.exchange(1000);  // its result is lost
    worker.compute(2);      // a microbatch of a lost member
    worker.exchange(5);
    ASSERT_EQ(worker.fetch(), plus(sums_of({1, 2}, true, worker.exponents()), 5)) << seed;
  }
}

TEST(DeviceSums, AMicrobatchWaitsForTheCopyOfTheOnesBefore) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeSumDevice device(seed);
    Worker worker(device, true);
    worker.begin();
    worker.compute(1);
    const std::span<std::uint32_t> copy = worker.sums().stage(0, kBuckets[0]);
    worker.compute(2);
    (void)worker.sums().find();
    const std::vector<std::uint32_t> wanted = sums_of({1}, true, worker.exponents());
    ASSERT_TRUE(std::equal(copy.begin(), copy.end(), wanted.begin() + kOffsets[2])) << seed;
  }
}

TEST(DeviceSums, WithoutMicrobatchesAreZero) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeSumDevice device(seed);
    Worker worker(device, true);
    worker.begin();
    worker.compute(1);
    worker.exchange(0);
    worker.begin();
    for (std::size_t b = 0; b < std::size(kBuckets); ++b) {
      worker.sums().settle(b, kBuckets[b]);
    }
    worker.exchange(7);
    ASSERT_EQ(worker.fetch(), std::vector<std::uint32_t>(kOffsets.back(), 7)) << seed;
    const SumFindings found = worker.sums().find();
    EXPECT_EQ(found.overflows + found.nonfinite, 0U);
    for (const std::int32_t observed : found.observed) {
      EXPECT_EQ(observed, kUnsetExponent);
    }
  }
}

TEST(DeviceSums, FindWhatDoesNotFitAndWhatIsNotFinite) {
  FakeSumDevice device(1);
  Worker worker(device, true);
  worker.exponents() = {0, -20, 0, -20};
  worker.begin();
  worker.compute(1);
  worker.compute(2);
  const SumFindings found = worker.sums().find();
  EXPECT_EQ(found.overflows, 4U);  // two blocks, two microbatches
  EXPECT_EQ(found.nonfinite, 0U);
  ASSERT_EQ(found.observed.size(), 4U);
  for (const std::int32_t observed : found.observed) {
    EXPECT_LE(observed, 0);
    EXPECT_GT(observed, -10);
  }
  worker.begin();
  EXPECT_EQ(worker.sums().find().overflows, 0U) << "a step does not inherit";
}

TEST(DeviceSums, FindANanInPlainSumsToo) {
  for (const bool exact : {true, false}) {
    FakeSumDevice device(1);
    Worker worker(device, exact);
    worker.begin();
    worker.gradient(4) = std::numeric_limits<float>::quiet_NaN();
    worker.sums().add(1, kBuckets[1], true);
    EXPECT_EQ(worker.sums().find().nonfinite, 1U);
  }
}

TEST(DeviceSums, SayBeforehandWhatTheyAllocateOnTheDevice) {
  for (const bool exact : {true, false}) {
    FakeSumDevice device(1);
    const Worker worker(device, exact);
    EXPECT_EQ(device.device_bytes(), DeviceSums::device_bytes({kOffsets, exact, kBits}));
  }
}

TEST(DeviceSums, ADeviceWithoutMemoryIsRefusedAndKeepsNothing) {
  for (int number = 0; number < 6; ++number) {
    FakeSumDevice device(1);
    const DeviceStream compute = device.make_stream().value();
    device.fail_allocation(number);
    const float gradient = 0;
    const Result<std::unique_ptr<DeviceSums>> made =
        DeviceSums::make(device, {kOffsets, true, kBits}, {&gradient, compute});
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, Errc::kUnsupported);
    device.destroy_stream(compute);
  }  // the device ends the test if something is still allocated
}

}  // namespace
}  // namespace mayfly::collectives
