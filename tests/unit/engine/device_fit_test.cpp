// The check whether a worker's GPU has enough memory agrees with the allocations that follow it.

#include <gtest/gtest.h>

#include <string>

#include "engine/reduction/model_layout.hpp"
#include "engine/training/backend.hpp"
#include "nn/cuda/device_choice.hpp"
#include "tests/unit/collectives/nccl/fake_sum_device.hpp"

namespace mayfly::engine {
namespace {

using collectives::DeviceStream;
using collectives::DeviceSums;
using collectives::test::FakeSumDevice;

constexpr std::uint32_t kMicrobatch = 16;

/// Makes the allocations of a worker with backend nccl on a device of this size: the engine's one
/// block, then the sums. Returns whether they succeed.
bool fits_really(const nn::cuda::StepPlan& plan, const ReductionLayout& layout, bool exact,
                 std::size_t bytes) {
  FakeSumDevice device(1);
  device.limit_memory(bytes);
  const DeviceStream compute = device.make_stream().value();
  const Result<void*> step = device.allocate(plan.memory.total());
  const float gradient = 0;
  bool fits = step.ok();
  if (fits) {
    fits = DeviceSums::make(device, device_sums_shape(layout, exact, 4), {&gradient, compute}).ok();
    device.release(step.value());
  }
  device.destroy_stream(compute);
  return fits;
}

TEST(DeviceFit, AWorkerFitsExactlyIfItIsSaidTo) {
  for (const std::string name : {"resnet20", "resnet56"}) {
    const nn::Model model = nn::make_usual_model(name, 32).value();
    const nn::cuda::StepPlan plan = nn::cuda::make_step_plan(model, kMicrobatch, {});
    const ReductionLayout layout = layout_of(model);
    for (const bool exact : {true, false}) {
      const std::size_t sums = device_sums_bytes(layout, exact);
      EXPECT_GE(sums, 2 * model.parameter_count * sizeof(float)) << "sums, and a copy for the wire";
      const std::size_t enough = plan.memory.total() + sums;
      for (const std::size_t bytes : {enough - 1, enough, enough + 1000}) {
        const Result<void> said = nn::cuda::check_fit(model, kMicrobatch, {}, plan, {bytes, sums});
        EXPECT_EQ(said.ok(), fits_really(plan, layout, exact, bytes))
            << name << ", " << bytes << " bytes of " << enough;
      }
    }
  }
}

}  // namespace
}  // namespace mayfly::engine
