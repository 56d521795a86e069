// Sums on a device give the same results as sums on the host.

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "base/random.hpp"
#include "collectives/plan/reduce_kernels.hpp"
#include "engine/reduction/gradient_wire.hpp"
#include "engine/reduction/model_layout.hpp"
#include "engine/training/backend.hpp"
#include "tests/unit/collectives/nccl/host_sum_calls.hpp"

namespace mayfly::engine {
namespace {

constexpr std::uint32_t kDeviceMicrobatches = 6;

/// The results of a step, bit by bit.
struct Outcome {
  StepTotals totals;
  std::vector<std::uint32_t> means;
  std::vector<std::int32_t> next;
  std::vector<std::int32_t> raised;
};

class DeviceWireTest : public ::testing::TestWithParam<Wire> {
 protected:
  /// A worker with its sums on the host or on a device.
  struct Worker {
    std::vector<float> gradient;  // where the engine of a device writes it
    std::unique_ptr<collectives::DeviceSums> device;
    std::unique_ptr<GradientSums> sums;
    std::unique_ptr<GradientWire> wire;
  };

  Worker worker(bool on_device) {
    Worker made;
    made.sums = std::make_unique<GradientSums>(layout, GetParam(), kDeviceMicrobatches);
    if (on_device) {
      made.gradient.resize(model.parameter_count);
      made.device = collectives::DeviceSums::make(
                        calls, device_sums_shape(layout, is_exact(GetParam()), kDeviceMicrobatches),
                        {made.gradient.data(), collectives::DeviceStream(this)})
                        .value();
      made.sums->keep_on(*made.device);
    }
    made.wire = make_gradient_wire(GetParam(), layout, kDeviceMicrobatches, made.device.get());
    made.wire->begin_view(2);
    return made;
  }

  std::vector<float> vector_of(std::uint64_t step, std::uint32_t microbatch) const {
    RandomStream random(CounterRandom(step).split(microbatch));
    std::vector<float> vector(layout.element_count());
    for (float& x : vector) {
      x = static_cast<float>(random.unit() - 0.5);
    }
    if (spoil != 0 && microbatch == 1) {
      vector[spoil] = std::numeric_limits<float>::infinity();
    }
    return vector;
  }

  void add(Worker& worker, std::uint64_t step, std::uint32_t microbatch) {
    std::vector<float> vector = vector_of(step, microbatch);
    if (worker.device != nullptr) {
      const auto parameters =
          vector.begin() + static_cast<std::ptrdiff_t>(layout.parameters_offset());
      std::copy(parameters, vector.end(), worker.gradient.begin());
      std::fill(parameters, vector.end(), -1e30F);  // the sums must not read these
    }
    for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
      worker.sums->add_bucket(b, vector, microbatch);
    }
    StepTotals counted;
    counted.add_sample(microbatch);
    worker.sums->add_totals(counted);
  }

  /// All-reduces the messages of two workers.
  static void reduce(const WireMessages& one, const WireMessages& other) {
    ASSERT_EQ(one.count, other.count);
    for (std::size_t m = 0; m < one.count; ++m) {
      const WireMessage& message = one.list[m];
      ASSERT_EQ(message.count, other.list[m].count);
      collectives::reduce(message.data, other.list[m].data, message.count, message.type,
                          collectives::ReduceOp::kSum);
      std::memcpy(other.list[m].data, message.data,
                  message.count * collectives::size_of(message.type));
    }
  }

  Outcome exchange(std::vector<Worker>& workers) {
    for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
      std::vector<WireMessages> messages;
      for (Worker& worker : workers) {
        worker.sums->settle(b);
        messages.push_back(worker.wire->pack(b, *worker.sums));
      }
      reduce(messages[0], messages[1]);
      for (Worker& worker : workers) {
        worker.wire->arrived(b);
      }
    }
    std::vector<std::int32_t> largest = exponents;
    for (std::size_t b = 0; b < largest.size(); ++b) {
      largest[b] = std::max(workers[0].sums->observed()[b], workers[1].sums->observed()[b]);
    }
    return outcome_of(*workers[1].wire, largest);
  }

  Outcome outcome_of(GradientWire& wire, const std::vector<std::int32_t>& largest) const {
    Outcome outcome;
    outcome.totals = wire.totals(exponents, largest);
    wire.fetch_sums();
    std::vector<float> means(layout.element_count());
    for (std::size_t b = 0; b < layout.blocks().block_count(); ++b) {
      wire.mean(b, exponents, 1.0F / kDeviceMicrobatches,
                std::span(means).subspan(layout.blocks().offset(b), layout.blocks().size(b)));
    }
    outcome.means.resize(means.size());
    std::memcpy(outcome.means.data(), means.data(), means.size() * sizeof(float));
    for (std::size_t b = 0; b < exponents.size(); ++b) {
      outcome.next.push_back(wire.next_exponent(mayfly::Step{8}, b, exponents[b], largest[b]));
      outcome.raised.push_back(wire.raised_exponent(b, exponents[b], largest[b]));
    }
    return outcome;
  }

  /// Runs a step of two workers, of which worker `idle` computes nothing; 2 = both compute.
  Outcome step(bool on_device, std::uint64_t number, std::size_t idle = 2) {
    std::vector<Worker> workers;
    workers.push_back(worker(on_device));
    workers.push_back(worker(on_device));
    for (Worker& worker : workers) {
      worker.sums->clear(exponents, number);
    }
    for (std::uint32_t m = 0; m < kDeviceMicrobatches; ++m) {
      const std::size_t who = idle == 2 ? m % 2 : 1 - idle;
      add(workers[who], number, m);
    }
    return exchange(workers);
  }

  static void expect_same(const Outcome& found, const Outcome& wanted) {
    EXPECT_EQ(found.means, wanted.means);
    EXPECT_EQ(found.next, wanted.next);
    EXPECT_EQ(found.raised, wanted.raised);
    EXPECT_EQ(found.totals.overflows, wanted.totals.overflows);
    EXPECT_EQ(found.totals.nonfinite > 0, wanted.totals.nonfinite > 0);
    EXPECT_EQ(found.totals.samples, wanted.totals.samples);
    EXPECT_EQ(found.totals.sample_hash, wanted.totals.sample_hash);
  }

  collectives::test::HostSumCalls calls;
  nn::Model model = nn::make_model("resnet20", 10).value();
  ReductionLayout layout = layout_of(model);
  std::vector<std::int32_t> exponents = std::vector<std::int32_t>(layout.blocks().block_count(), 3);
  std::size_t spoil = 0;  // an element that is infinite in microbatch 1; 0 = none
};

TEST_P(DeviceWireTest, GivesTheBitsOfTheHostForAnyBuckets) {
  for (const std::size_t elements :
       {std::size_t{1} << 14, std::size_t{1} << 17, std::size_t{1} << 30}) {
    layout.cut_buckets(elements);
    expect_same(step(true, 3), step(false, 3));
  }
}

TEST_P(DeviceWireTest, AMemberWithoutWorkAddsNothing) {
  for (const std::size_t idle : {0U, 1U}) {
    expect_same(step(true, 4, idle), step(false, 4, idle));
  }
}

TEST_P(DeviceWireTest, SeesWhatOverflowsWhereverItIs) {
  exponents.assign(exponents.size(), -4);
  const Outcome found = step(true, 5);
  const Outcome wanted = step(false, 5);
  EXPECT_EQ(found.totals.overflows, wanted.totals.overflows);
  EXPECT_EQ(found.totals.overflows > 0, is_exact(GetParam()));
  EXPECT_EQ(found.raised, wanted.raised);
}

TEST_P(DeviceWireTest, SeesWhatIsNotFiniteWhereverItIs) {
  for (const std::size_t place : {layout.statistics_offset() + 3, layout.parameters_offset() + 5,
                                  layout.element_count() - 1}) {
    spoil = place;
    EXPECT_GT(step(true, 6).totals.nonfinite, 0);
    EXPECT_GT(step(false, 6).totals.nonfinite, 0);
  }
}

TEST_P(DeviceWireTest, SumsAreValidInTheNextView) {
  std::vector<Worker> workers;
  workers.push_back(worker(true));
  workers.push_back(worker(true));
  for (Worker& worker : workers) {
    worker.sums->clear(exponents, 7);
  }
  for (std::uint32_t m = 0; m < kDeviceMicrobatches - 1; ++m) {
    add(workers[m % 2], 7, m);
  }
  (void)exchange(workers);  // in a view that ended before the step was complete
  add(workers[0], 7, kDeviceMicrobatches - 1);
  std::vector<Worker> reference;
  reference.push_back(worker(false));
  reference.push_back(worker(false));
  for (Worker& worker : reference) {
    worker.sums->clear(exponents, 7);
  }
  for (std::uint32_t m = 0; m < kDeviceMicrobatches; ++m) {
    add(reference[m + 1 == kDeviceMicrobatches ? 0 : m % 2], 7, m);
  }
  expect_same(exchange(workers), exchange(reference));
}

INSTANTIATE_TEST_SUITE_P(Wires, DeviceWireTest, testing::Values(Wire::kInt32, Wire::kFp32),
                         [](const auto& parameter) {
                           return std::string(name_of(parameter.param));
                         });

}  // namespace
}  // namespace mayfly::engine
