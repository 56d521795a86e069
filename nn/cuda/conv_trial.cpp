#include "nn/cuda/conv_trial.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "nn/cuda/cuda_handles.hpp"
#include "nn/cuda/cudnn/conv_plan.hpp"
#include "nn/cuda/stored_value.hpp"
#include "nn/cuda/trial_norm.hpp"

namespace mayfly::nn::cuda {
namespace {

using OwnedCudnn = Owned<cudnnHandle_t, &cudnnDestroy>;

constexpr std::size_t kPatternElements = 65'521;  // prime: rows of a tensor differ
constexpr std::size_t kSlices = 16;               // of a result that are compared,
constexpr std::size_t kSliceElements = 65'536;    // each of at most so many elements
constexpr int kRunsPerTime = 5;
constexpr int kNoNumber = 0xff;  // bytes that are NaN in every type

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
    if (norm_.has_value()) {
      names.front() = {.index = EngineName::kUnfused, .knobs = {}};
    }
    return names;
  }
  Result<TrialResult> result(std::size_t engine) override;
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
  Result<void> plan(std::size_t engines_max);
  Result<void> allocate();
  Result<void> make_norm();
  Result<void> bind();
  using Value = std::function<float(float random, std::size_t i)>;
  Result<void> fill(void* to, std::size_t elements, Dtype dtype, std::uint64_t purpose,
                    const Value& value = {});
  /// The convolution by a plan and, of a fused pass, what follows it.
  Result<void> run(std::size_t engine, bool masks);
  Result<std::vector<float>> read_slices();
  Result<std::vector<float>> read_per_channel();
  Result<void> settled(const char* what_we_did) {
    return check(cudaStreamSynchronize(stream_), what_we_did);
  }

  cudnnHandle_t handle_;
  cudaStream_t stream_;
  ConvKey key_;
  std::vector<cudnn::ConvPlan> plans_;    // of a fused pass the first is that of its convolution
  std::vector<cudnn::Descriptor> bound_;  // by plan
  Tensor x_, filter_, y_;
  DeviceMemory workspace_;
  DeviceMemory norm_memory_;
  std::optional<TrialNorm> norm_;  // of a fused pass
  OwnedEvent begin_, end_;
};

/// What is convolved where nothing is fused.
ConvPass plain(ConvPass pass) {
  switch (pass) {
    case ConvPass::kForwardSums: return ConvPass::kForward;
    case ConvPass::kInputGradientSums: return ConvPass::kInputGradient;
    default: return pass;
  }
}

Result<void> ConvTrial::plan(std::size_t engines_max) {
  const cudnn::PlanningTarget target(handle_);
  const ConvPass convolved = plain(key_.pass);
  Result<std::vector<cudnn::ConvPlan>> plans = cudnn::ConvPlan::offered(
      key_.shape, convolved, key_.dtype, target, convolved == key_.pass ? engines_max : 1);
  if (!plans.ok()) {
    return std::move(plans).error();
  }
  plans_ = std::move(plans).value();
  if (convolved == key_.pass) {
    return {};
  }
  // None is no failure: then it stays unfused.
  auto fused = cudnn::ConvPlan::offered(key_.shape, key_.pass, key_.dtype, target, engines_max);
  if (fused.ok()) {
    std::ranges::move(fused.value(), std::back_inserter(plans_));
  }
  return {};
}

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

/// Random numbers of [-1, 1), or what follows from them, again and again.
Result<void> ConvTrial::fill(void* to, std::size_t elements, Dtype dtype, std::uint64_t purpose,
                             const Value& value) {
  const std::size_t width = nn::bytes_of(dtype);
  const std::size_t bytes = elements * width;
  const CounterRandom random = CounterRandom(1).split(purpose);
  std::vector<std::byte> pattern(std::min(elements, kPatternElements) * width);
  for (std::size_t i = 0; i < pattern.size() / width; ++i) {
    const auto drawn = static_cast<float>(2 * random.unit(i) - 1);
    store(dtype, value ? value(drawn, i) : drawn, pattern.data() + i * width);
  }
  auto* const first = static_cast<std::byte*>(to);
  Result<void> copied =
      check(cudaMemcpy(first, pattern.data(), pattern.size(), cudaMemcpyHostToDevice),
            "copying random numbers to the device");
  for (std::size_t done = pattern.size(); copied.ok() && done < bytes;) {
    const std::size_t more = std::min(done, bytes - done);
    copied = check(cudaMemcpy(first + done, first, more, cudaMemcpyDeviceToDevice),
                   "copying random numbers");
    done += more;
  }
  return copied;
}

Result<void> ConvTrial::make_norm() {
  if (!is_fused(key_.pass)) {
    return {};
  }
  Result<DeviceMemory> memory = make_device_memory(TrialNorm::bytes_for(key_));
  if (!memory.ok()) {
    return std::move(memory).error();
  }
  norm_memory_ = std::move(memory).value();
  norm_.emplace(key_, device_kernels(), norm_memory_.get());
  std::uint64_t purpose = 10;
  for (const TrialNorm::Input& input : norm_->inputs()) {
    ++purpose;
    const auto value = [&input](float random, std::size_t i) { return input.value(random, i); };
    Result<void> filled = fill(input.at, input.elements, input.dtype, purpose, value);
    if (!filled.ok()) {
      return filled;
    }
  }
  const LossInput loss = training_input(0, 1, 1);
  Result<void> copied =
      check(cudaMemcpy(norm_->loss_input(), &loss, sizeof loss, cudaMemcpyHostToDevice),
            "copying the loss scale");
  // What is on the null stream is not waited for by ours.
  if (copied.ok()) {
    copied = check(cudaDeviceSynchronize(), "preparing a norm");
  }
  return copied.ok() ? norm_->prepare(stream_) : copied;
}

Result<void> ConvTrial::bind() {
  ConvTensors tensors{.x = x_.memory.get(),
                      .filter = filter_.memory.get(),
                      .y = y_.memory.get(),
                      .workspace = workspace_.get()};
  if (norm_.has_value()) {
    tensors = norm_->with(tensors);
  }
  for (const cudnn::ConvPlan& plan : plans_) {
    Result<cudnn::Descriptor> bound = plan.bind(tensors);
    if (!bound.ok()) {
      return std::move(bound).error();
    }
    bound_.push_back(std::move(bound).value());
  }
  return {};
}

Result<void> ConvTrial::prepare(std::size_t engines_max) {
  Result<void> done = plan(engines_max);
  if (done.ok()) {
    done = allocate();
  }
  std::uint64_t purpose = 0;
  for (Tensor* tensor : {&x_, &filter_, &y_}) {
    ++purpose;
    if (done.ok()) {
      done = fill(tensor->memory.get(), tensor->elements, key_.dtype, purpose);
    }
  }
  if (done.ok()) {
    done = make_norm();
  }
  if (done.ok()) {
    done = bind();
  }
  return done.ok() ? check(cudaDeviceSynchronize(), "preparing a convolution") : done;
}

Result<void> ConvTrial::run(std::size_t engine, bool masks) {
  Result<void> done = plans_[engine].run(handle_, bound_[engine]);
  if (!done.ok() || !norm_.has_value()) {
    return done;
  }
  return engine == 0 ? norm_->after_plain(output().memory.get(), masks, stream_)
                     : norm_->after_fused(stream_);
}

/// Of what was written.
Result<std::vector<float>> ConvTrial::read_slices() {
  const Tensor& out = output();
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

Result<std::vector<float>> ConvTrial::read_per_channel() {
  std::vector<float> values(norm_.has_value() ? norm_->per_channel_count() : 0);
  if (values.empty()) {
    return values;
  }
  Result<void> read = check(cudaMemcpy(values.data(), norm_->per_channel(),
                                       values.size() * sizeof(float), cudaMemcpyDeviceToHost),
                            "reading sums");
  return read.ok() ? Result<std::vector<float>>(std::move(values))
                   : Result<std::vector<float>>(std::move(read).error());
}

Result<TrialResult> ConvTrial::result(std::size_t engine) {
  Tensor& out = output();
  Result<void> done = check(cudaMemsetAsync(out.memory.get(), kNoNumber, bytes_of(out), stream_),
                            "clearing a result");
  if (done.ok() && norm_.has_value()) {
    done = check(cudaMemsetAsync(norm_->totals(), kNoNumber, norm_->totals_bytes(), stream_),
                 "clearing sums");
  }
  if (done.ok()) {
    done = run(engine, true);
  }
  if (done.ok()) {
    done = settled("computing a convolution");
  }
  if (!done.ok()) {
    return std::move(done).error();
  }
  Result<std::vector<float>> elements = read_slices();
  Result<std::vector<float>> per_channel = read_per_channel();
  if (!elements.ok() || !per_channel.ok()) {
    return elements.ok() ? std::move(per_channel).error() : std::move(elements).error();
  }
  return TrialResult{std::move(elements).value(), std::move(per_channel).value()};
}

Result<double> ConvTrial::microseconds(std::size_t engine) {
  Result<void> done = check(cudaEventRecord(begin_.get(), stream_), "taking the time");
  for (int i = 0; i < kRunsPerTime && done.ok(); ++i) {
    done = run(engine, false);
  }
  if (done.ok()) {
    done = check(cudaEventRecord(end_.get(), stream_), "taking the time");
  }
  if (done.ok()) {
    done = settled("timing a convolution");
  }
  float took_ms = 0;
  if (done.ok()) {
    done = check(cudaEventElapsedTime(&took_ms, begin_.get(), end_.get()), "reading the time");
  }
  if (!done.ok()) {
    return std::move(done).error();
  }
  return took_ms * 1e3 / kRunsPerTime;
}

}  // namespace

Result<void> time_on_device(const std::set<ConvKey>& convolutions,
                            const EngineTimingRequest& request, const EngineTimingSink& take) {
  TRY(check(cudaSetDevice(request.device), "choosing the device"));
  const Result<OwnedStream> stream = make_stream();
  if (!stream.ok()) {
    return stream.error();
  }
  cudnnHandle_t handle = nullptr;
  TRY(cudnn::check(cudnnCreate(&handle), "starting"));
  const OwnedCudnn owned(handle);
  Result<void> set =
      cudnn::check(cudnnSetStream(handle, stream.value().get()), "setting the stream");
  if (!set.ok()) {
    return set;
  }
  const auto make = [&](const ConvKey& key) -> Result<std::unique_ptr<EngineTrial>> {
    auto trial = std::make_unique<ConvTrial>(handle, stream.value().get(), key);
    TRY(trial->prepare(request.engines_max));
    return std::unique_ptr<EngineTrial>(std::move(trial));
  };
  return time_each(convolutions, request.rounds, make, take);
}

}  // namespace mayfly::nn::cuda
