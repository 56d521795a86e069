#include "nn/cuda/conv_trial.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "nn/cuda/cuda_handles.hpp"
#include "nn/cuda/cudnn/conv_plan.hpp"

namespace mayfly::nn::cuda {
namespace {

using OwnedCudnn = Owned<cudnnHandle_t, &cudnnDestroy>;

constexpr std::size_t kPatternElements = 65'521;  // prime: rows of a tensor differ
constexpr std::size_t kSlices = 16;               // of a result that are compared,
constexpr std::size_t kSliceElements = 65'536;    // each of at most so many elements
constexpr int kRunsPerTime = 5;
constexpr int kNoNumber = 0xff;  // bytes that are NaN in every type

void store(Dtype dtype, float value, std::byte* to) {
  if (dtype == Dtype::kFp32) {
    std::memcpy(to, &value, sizeof value);
  } else if (dtype == Dtype::kBf16) {
    const __nv_bfloat16 half = __float2bfloat16(value);
    std::memcpy(to, &half, sizeof half);
  } else {
    const __half half = __float2half(value);
    std::memcpy(to, &half, sizeof half);
  }
}

float load(Dtype dtype, const std::byte* from) {
  if (dtype == Dtype::kFp32) {
    float value = 0;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  if (dtype == Dtype::kBf16) {
    __nv_bfloat16 half;
    std::memcpy(&half, from, sizeof half);
    return __bfloat162float(half);
  }
  __half half;
  std::memcpy(&half, from, sizeof half);
  return __half2float(half);
}

/// An event that keeps its time, which make_event()'s do not.
Result<OwnedEvent> make_clock() {
  cudaEvent_t event = nullptr;
  Result<void> made = check(cudaEventCreate(&event), "making an event");
  return made.ok() ? Result<OwnedEvent>(OwnedEvent(event)) : std::move(made).error();
}

/// One tensor on the device.
struct Tensor {
  std::size_t elements = 0;
  DeviceMemory memory;
};

class ConvTrial final : public EngineTrial {
 public:
  ConvTrial(cudnnHandle_t handle, cudaStream_t stream, const ConvKey& key)
      : handle_(handle), stream_(stream), key_(key) {}

  Result<void> prepare(std::size_t engines_max);

  [[nodiscard]] std::vector<EngineName> engines() const override {
    std::vector<EngineName> names;
    std::ranges::transform(plans_, std::back_inserter(names),
                           [](const cudnn::ConvPlan& plan) { return plan.engine(); });
    return names;
  }
  Result<std::vector<float>> result(std::size_t engine) override;
  Result<double> microseconds(std::size_t engine) override;

 private:
  /// What the pass writes; the other two are read.
  Tensor& output() {
    switch (key_.pass) {
      case ConvPass::kForward:
      case ConvPass::kForwardSums: return y_;
      case ConvPass::kInputGradient:
      case ConvPass::kInputGradientSums: return x_;
      case ConvPass::kWeightGradient: break;
    }
    return filter_;
  }
  [[nodiscard]] std::size_t bytes_of(const Tensor& tensor) const {
    return tensor.elements * nn::bytes_of(key_.dtype);
  }
  Result<void> allocate();
  Result<void> fill(Tensor& tensor, std::uint64_t purpose);
  Result<void> settled(const char* what_we_did) {
    return check(cudaStreamSynchronize(stream_), what_we_did);
  }

  cudnnHandle_t handle_;
  cudaStream_t stream_;
  ConvKey key_;
  std::vector<cudnn::ConvPlan> plans_;
  std::vector<cudnn::Descriptor> bound_;  // by plan
  Tensor x_, filter_, y_;
  DeviceMemory workspace_;
  OwnedEvent begin_, end_;
};

Result<void> ConvTrial::allocate() {
  x_.elements = key_.shape.input_elements();
  filter_.elements = key_.shape.filter_elements();
  y_.elements = key_.shape.output_elements();
  for (Tensor* tensor : {&x_, &filter_, &y_}) {
    Result<DeviceMemory> memory = make_device_memory(bytes_of(*tensor));
    if (!memory.ok()) {
      return std::move(memory).error();
    }
    tensor->memory = std::move(memory).value();
  }
  std::size_t workspace_bytes = 1;
  for (const cudnn::ConvPlan& plan : plans_) {
    workspace_bytes = std::max(workspace_bytes, plan.workspace_bytes());
  }
  Result<DeviceMemory> workspace = make_device_memory(workspace_bytes);
  if (!workspace.ok()) {
    return std::move(workspace).error();
  }
  workspace_ = std::move(workspace).value();
  for (OwnedEvent* event : {&begin_, &end_}) {
    Result<OwnedEvent> made = make_clock();
    if (!made.ok()) {
      return std::move(made).error();
    }
    *event = std::move(made).value();
  }
  return {};
}

/// Random numbers of [-1, 1), again and again.
Result<void> ConvTrial::fill(Tensor& tensor, std::uint64_t purpose) {
  const std::size_t width = nn::bytes_of(key_.dtype);
  const CounterRandom random = CounterRandom(1).split(purpose);
  std::vector<std::byte> pattern(std::min(tensor.elements, kPatternElements) * width);
  for (std::size_t i = 0; i < pattern.size() / width; ++i) {
    store(key_.dtype, static_cast<float>(2 * random.unit(i) - 1), pattern.data() + i * width);
  }
  auto* const to = static_cast<std::byte*>(tensor.memory.get());
  Result<void> copied =
      check(cudaMemcpy(to, pattern.data(), pattern.size(), cudaMemcpyHostToDevice),
            "copying random numbers to the device");
  for (std::size_t done = pattern.size(); copied.ok() && done < bytes_of(tensor);) {
    const std::size_t more = std::min(done, bytes_of(tensor) - done);
    copied =
        check(cudaMemcpy(to + done, to, more, cudaMemcpyDeviceToDevice), "copying random numbers");
    done += more;
  }
  return copied;
}

Result<void> ConvTrial::prepare(std::size_t engines_max) {
  Result<std::vector<cudnn::ConvPlan>> plans = cudnn::ConvPlan::offered(
      key_.shape, key_.pass, key_.dtype, cudnn::PlanningTarget(handle_), engines_max);
  if (!plans.ok()) {
    return std::move(plans).error();
  }
  plans_ = std::move(plans).value();
  if (Result<void> allocated = allocate(); !allocated.ok()) {
    return allocated;
  }
  std::uint64_t purpose = 0;
  for (Tensor* tensor : {&x_, &filter_, &y_}) {
    ++purpose;
    if (Result<void> filled = fill(*tensor, purpose); !filled.ok()) {
      return filled;
    }
  }
  const ConvTensors tensors{.x = x_.memory.get(),
                            .filter = filter_.memory.get(),
                            .y = y_.memory.get(),
                            .workspace = workspace_.get()};
  for (const cudnn::ConvPlan& plan : plans_) {
    Result<cudnn::Descriptor> bound = plan.bind(tensors);
    if (!bound.ok()) {
      return std::move(bound).error();
    }
    bound_.push_back(std::move(bound).value());
  }
  // What is on the null stream is not waited for by ours.
  return check(cudaDeviceSynchronize(), "preparing a convolution");
}

Result<std::vector<float>> ConvTrial::result(std::size_t engine) {
  Tensor& out = output();
  Result<void> run = check(cudaMemsetAsync(out.memory.get(), kNoNumber, bytes_of(out), stream_),
                           "clearing a result");
  if (run.ok()) {
    run = plans_[engine].run(handle_, bound_[engine]);
  }
  if (run.ok()) {
    run = settled("computing a convolution");
  }
  if (!run.ok()) {
    return std::move(run).error();
  }
  const std::size_t width = nn::bytes_of(key_.dtype);
  const std::size_t part = out.elements / kSlices;
  const std::size_t count = part == 0 ? out.elements : std::min(part, kSliceElements);
  std::vector<std::byte> bytes(count * width);
  std::vector<float> values;
  for (std::size_t slice = 0; slice < (part == 0 ? 1 : kSlices); ++slice) {
    // The last slice ends where the tensor does.
    const std::size_t first = slice + 1 == kSlices ? out.elements - count : slice * part;
    Result<void> read = check(
        cudaMemcpy(bytes.data(), static_cast<const std::byte*>(out.memory.get()) + first * width,
                   bytes.size(), cudaMemcpyDeviceToHost),
        "reading a result");
    if (!read.ok()) {
      return std::move(read).error();
    }
    for (std::size_t i = 0; i < count; ++i) {
      values.push_back(load(key_.dtype, bytes.data() + i * width));
    }
  }
  return values;
}

Result<double> ConvTrial::microseconds(std::size_t engine) {
  Result<void> run = check(cudaEventRecord(begin_.get(), stream_), "taking the time");
  for (int i = 0; i < kRunsPerTime && run.ok(); ++i) {
    run = plans_[engine].run(handle_, bound_[engine]);
  }
  if (run.ok()) {
    run = check(cudaEventRecord(end_.get(), stream_), "taking the time");
  }
  if (run.ok()) {
    run = settled("timing a convolution");
  }
  float took_ms = 0;
  if (run.ok()) {
    run = check(cudaEventElapsedTime(&took_ms, begin_.get(), end_.get()), "reading the time");
  }
  if (!run.ok()) {
    return std::move(run).error();
  }
  return took_ms * 1e3 / kRunsPerTime;
}

}  // namespace

Result<void> time_on_device(const std::set<ConvKey>& convolutions,
                            const EngineTimingRequest& request, const EngineTimingSink& take) {
  if (Result<void> set = check(cudaSetDevice(request.device), "choosing the device"); !set.ok()) {
    return set;
  }
  const Result<OwnedStream> stream = make_stream();
  if (!stream.ok()) {
    return stream.error();
  }
  cudnnHandle_t handle = nullptr;
  if (Result<void> made = cudnn::check(cudnnCreate(&handle), "starting"); !made.ok()) {
    return made;
  }
  const OwnedCudnn owned(handle);
  Result<void> set =
      cudnn::check(cudnnSetStream(handle, stream.value().get()), "setting the stream");
  if (!set.ok()) {
    return set;
  }
  const auto make = [&](const ConvKey& key) -> Result<std::unique_ptr<EngineTrial>> {
    auto trial = std::make_unique<ConvTrial>(handle, stream.value().get(), key);
    if (Result<void> prepared = trial->prepare(request.engines_max); !prepared.ok()) {
      return std::move(prepared).error();
    }
    return std::unique_ptr<EngineTrial>(std::move(trial));
  };
  return time_each(convolutions, request.rounds, make, take);
}

}  // namespace mayfly::nn::cuda
