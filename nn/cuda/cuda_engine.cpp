#include "nn/cuda/cuda_engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "base/check.hpp"
#include "base/gpu_facts.hpp"
#include "base/try_assign.hpp"
#include "nn/cuda/cuda_handles.hpp"
#include "nn/cuda/cudnn_convolver.hpp"
#include "nn/cuda/device_choice.hpp"
#include "nn/cuda/device_copies.hpp"
#include "nn/cuda/resident_state.hpp"

namespace mayfly::nn::cuda {
namespace {

constexpr std::uint32_t kMicrobatchMax = 4096;

using OwnedCudnn = Owned<cudnnHandle_t, &cudnnDestroy>;

class CudaEngine final : public DeviceEngine {
 public:
  CudaEngine(const Model& model, const EngineRequest& request, ChosenDevice device)
      : model_(model),
        microbatch_(request.microbatch),
        request_(request),
        device_(std::move(device)) {}
  ~CudaEngine() override;

  /// The parts of building, in order.
  Result<void> open_device();
  Result<void> plan();
  Result<void> allocate();
  Result<void> make_feed();
  Result<void> warm_up();
  Result<void> record();
  Result<void> take_training_set();

  TrainResult train(const Weights& weights, const Batch& batch, float label_smoothing,
                    std::span<float> gradient, std::span<float> statistics,
                    GradientSink& sink) override;
  void prefetch(const Batch& next) override {
    ENSURE(feed_.has_value() && next.labels.size() == microbatch_, "images come from the host");
    feed_->expect(next);
  }
  EvaluationResult evaluate(const Weights& weights, const Batch& batch) override;
  [[nodiscard]] std::uint32_t microbatch() const override { return microbatch_; }
  [[nodiscard]] bool holds_training_set() const override { return plan_.set.has_value(); }
  [[nodiscard]] DeviceGradient gradient() const override {
    return {.device = device_.number,
            .is_shared = device_.is_shared,
            .gradient = executor_->floats(plan_.resident.gradient),
            .stream = stream()};
  }
  [[nodiscard]] DeviceOptimizer* optimizer() override {
    return state_->can_update() ? &*state_ : nullptr;
  }

 private:
  [[nodiscard]] Stream stream() const { return compute_.get(); }
  [[nodiscard]] void* at(TensorId id) const { return executor_->at(id); }
  [[nodiscard]] StatePlaces places() const;
  void check_images(const Batch& batch) const {
    ENSURE(batch.images.size() == batch.labels.size() * image_floats(model_),
           "one image per label");
  }
  void take_images(const Batch& batch) {
    check_images(batch);
    feed_->take(batch);
  }
  void take_test_images(const Batch& batch);
  void take_draws(const Batch& batch);
  void take_labels(const Batch& batch, TensorId labels, const LossInput& input);
  void bring_gradient(std::span<float> gradient, GradientSink& sink);
  [[nodiscard]] LossOutput loss_output();
  Result<void> upload(TensorId to, const void* from, std::size_t bytes);
  Result<void> download(void* to, const void* from, std::size_t bytes);

  const Model& model_;
  std::uint32_t microbatch_;
  EngineRequest request_;  ///< its training set does not exist any more when the engine is made
  ChosenDevice device_;    ///< released after everything else

  OwnedStream compute_;
  OwnedCudnn cudnn_;
  ConvPlans conv_plans_;
  StepPlan plan_;
  std::optional<CudnnConvolver> convolver_;
  std::optional<StepExecutor> executor_;
  DeviceMemory memory_;
  Staging staging_;
  GradientCopy gradient_copy_;
  std::optional<DeviceFeed> feed_calls_;  ///< none if the training set is on the device
  std::optional<ImageFeed> feed_;         ///< exists together with feed_calls_
  std::optional<ResidentState> state_;
  GraphProgram evaluation_program_;
  std::vector<GraphProgram> training_programs_;  ///< by segment
};

CudaEngine::~CudaEngine() {
  // No work may be running when memory and graphs are freed. Errors are ignored here.
  if (compute_.get() != nullptr) {
    (void)cudaStreamSynchronize(compute_.get());
  }
  gradient_copy_.settle();
  if (feed_calls_.has_value()) {
    feed_calls_->settle();
  }
}

Result<void> CudaEngine::open_device() {
  TRY(check(cudaSetDevice(device_.number), "choosing the device"));
  TRY_ASSIGN(compute_, make_stream());
  cudnnHandle_t handle = nullptr;
  TRY(cudnn::check(cudnnCreate(&handle), "starting"));
  cudnn_ = OwnedCudnn(handle);
  return cudnn::check(cudnnSetStream(handle, compute_.get()), "setting the stream");
}

/// Chooses engines for the convolutions, plans the step and allocates the memory for it.
Result<void> CudaEngine::plan() {
  const cudnn::PlanningTarget target(cudnn_.get());
  TRY_ASSIGN(conv_plans_, ConvPlans::choose(model_, microbatch_, request_.dtype, target));
  StepPlanOptions wanted{.dtype = request_.dtype, .keeps_state = request_.keeps_state};
  conv_plans_.describe(wanted, microbatch_);
  if (request_.training_set != nullptr) {
    wanted.set = request_.training_set->resident;
  }
  GpuMemory memory{.free_bytes = 0, .sums_bytes = request_.sums_bytes};
  std::size_t all_bytes = 0;
  TRY(check(cudaMemGetInfo(&memory.free_bytes, &all_bytes), "asking for memory"));
  TRY_ASSIGN(plan_, make_fitting_plan(model_, microbatch_, wanted, memory));
  TRY_ASSIGN(memory_, make_device_memory(plan_.memory.total()));
  convolver_.emplace(cudnn_.get(), conv_plans_);
  executor_.emplace(plan_, device_kernels(), *convolver_, memory_.get());
  TRY(convolver_->bind(plan_, *executor_));
  // The memory was cleared on the null stream, for which the engine's streams do not wait.
  return check(cudaDeviceSynchronize(), "clearing memory");
}

Result<void> CudaEngine::allocate() {
  TRY_ASSIGN(staging_, make_staging(model_, microbatch_));
  TRY_ASSIGN(gradient_copy_, GradientCopy::make(model_.parameter_count, plan_.training.size()));
  return holds_training_set() ? Result<void>() : make_feed();
}

Result<void> CudaEngine::make_feed() {
  TRY_ASSIGN(auto feed, DeviceFeed::make(compute_.get(), at(plan_.resident.next_images),
                                         at(plan_.resident.train_images),
                                         microbatch_ * image_floats(model_) * sizeof(float)));
  feed_calls_.emplace(std::move(feed));
  feed_.emplace(*feed_calls_);
  return {};
}

/// Computes everything once with zeros, without recording: kernels are loaded when they are first
/// started, which is not possible during a recording. And if the device rejects a kernel, this is
/// an error with a name instead of a failure in a step.
Result<void> CudaEngine::warm_up() {
  TRY(check(static_cast<cudaError_t>(device_kernels().load()), "loading our kernels"));
  TRY(upload(plan_.resident.filter_table, plan_.filters.data(),
             plan_.filters.size() * sizeof(Filter)));
  const OperationRange all{0, plan_.operations.size()};
  TRY(executor_->run(all, stream()));
  return check(cudaDeviceSynchronize(), "running a step of zeros");
}

StatePlaces CudaEngine::places() const {
  const ResidentTensors& r = plan_.resident;
  const std::size_t parameters = model_.parameter_count;
  return {.parameters = {executor_->floats(r.parameters), parameters},
          .statistics = {executor_->floats(r.running_statistics), model_.statistic_count},
          .gradient = {executor_->floats(r.gradient), parameters},
          .momentum = {executor_->floats(r.momentum), request_.keeps_state ? parameters : 0}};
}

Result<void> CudaEngine::record() {
  const auto program_of = [this](const OperationRange& range) {
    return capture(compute_.get(), [&] { return executor_->run(range, stream()); });
  };
  Result<GraphProgram> loading = program_of(plan_.load);
  Result<GraphProgram> evaluation = program_of(plan_.evaluation);
  for (Result<GraphProgram>* program : {&loading, &evaluation}) {
    if (!program->ok()) {
      return program->error();
    }
  }
  TRY_ASSIGN(auto state, ResidentState::make(device_.number, compute_.get(), places(),
                                             std::move(loading).value()));
  state_.emplace(std::move(state));
  evaluation_program_ = std::move(evaluation).value();
  for (const Segment& segment : plan_.training) {
    TRY_ASSIGN(auto program, program_of(segment.operations));
    training_programs_.push_back(std::move(program));
  }
  return {};
}

Result<void> CudaEngine::take_training_set() {
  return holds_training_set()
             ? copy_to_device(*request_.training_set, at(plan_.resident.set_pixels),
                              at(plan_.resident.set_table), stream())
             : Result<void>();
}

Result<void> CudaEngine::upload(TensorId to, const void* from, std::size_t bytes) {
  return check(cudaMemcpyAsync(at(to), from, bytes, cudaMemcpyHostToDevice, compute_.get()),
               "copying to the device");
}

Result<void> CudaEngine::download(void* to, const void* from, std::size_t bytes) {
  return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, compute_.get()),
               "copying from the device");
}

/// Here and below the staging memory is free, because its last user has waited for the device.
void CudaEngine::take_test_images(const Batch& batch) {
  check_images(batch);
  std::memcpy(staging_.images.get(), batch.images.data(), batch.images.size_bytes());
  require_gpu(
      upload(plan_.resident.evaluate_images, staging_.images.get(), batch.images.size_bytes()));
}

void CudaEngine::take_draws(const Batch& batch) {
  ENSURE(batch.draws.size() == batch.labels.size() && are_of(*plan_.set, batch.draws),
         "one draw per label, each of a sample of the set");
  std::memcpy(staging_.draws.get(), batch.draws.data(), batch.draws.size_bytes());
  require_gpu(upload(plan_.resident.train_draws, staging_.draws.get(), batch.draws.size_bytes()));
}

void CudaEngine::take_labels(const Batch& batch, TensorId labels, const LossInput& input) {
  const std::size_t label_bytes = microbatch_ * sizeof(std::uint16_t);
  std::memset(staging_.labels.get(), 0, label_bytes);
  std::memcpy(staging_.labels.get(), batch.labels.data(), batch.labels.size_bytes());
  std::memcpy(staging_.loss_input.get(), &input, sizeof input);
  require_gpu(upload(labels, staging_.labels.get(), label_bytes));
  require_gpu(upload(plan_.resident.loss_input, staging_.loss_input.get(), sizeof input));
}

/// Passes the gradient on as it arrives on the host, segment by segment.
void CudaEngine::bring_gradient(std::span<float> gradient, GradientSink& sink) {
  std::size_t end = gradient.size();
  for (std::size_t i = 0; i < plan_.training.size(); ++i) {
    const std::size_t first = plan_.training[i].ready_from;
    gradient_copy_.bring(i, first, end, gradient);
    end = first;
    sink.ready_from(first);
  }
}

LossOutput CudaEngine::loss_output() {
  require_gpu(
      download(staging_.loss_output.get(), at(plan_.resident.loss_output), sizeof(LossOutput)));
  require_gpu(check(cudaStreamSynchronize(compute_.get()), "computing"));
  LossOutput output;
  std::memcpy(&output, staging_.loss_output.get(), sizeof output);
  return output;
}

TrainResult CudaEngine::train(const Weights& weights, const Batch& batch, float label_smoothing,
                              std::span<float> gradient, std::span<float> statistics,
                              GradientSink& sink) {
  ENSURE(batch.labels.size() == microbatch_, "training uses whole microbatches");
  const bool stays = gradient.empty();
  ENSURE(stays || gradient.size() == model_.parameter_count,
         "the gradient has a place for each parameter");
  ENSURE(statistics.size() == model_.statistic_count, "the statistics have a place for each norm");
  state_->load(weights);
  holds_training_set() ? take_draws(batch) : take_images(batch);
  take_labels(batch, plan_.resident.train_labels,
              training_input(label_smoothing, microbatch_, weights.loss_scale));
  // The whole step is submitted to the device before anything is waited for.
  std::size_t end = model_.parameter_count;
  for (std::size_t i = 0; i < training_programs_.size(); ++i) {
    require_gpu(
        check(cudaGraphLaunch(training_programs_[i].get(), compute_.get()), "starting a segment"));
    if (stays) {
      sink.ready_from(plan_.training[i].ready_from);
    } else {
      gradient_copy_.start(i, compute_.get(), executor_->floats(plan_.resident.gradient),
                           plan_.training[i].ready_from, end);
    }
    end = plan_.training[i].ready_from;
  }
  require_gpu(download(staging_.statistics.get(), at(plan_.resident.batch_statistics),
                       statistics.size_bytes()));
  if (feed_.has_value()) {
    feed_->bring_expected();
  }
  if (!stays) {
    bring_gradient(gradient, sink);
  }
  const LossOutput output = loss_output();
  std::memcpy(statistics.data(), staging_.statistics.get(), statistics.size_bytes());
  return {.loss = static_cast<float>(output.loss_sum / microbatch_), .correct = output.correct};
}

EvaluationResult CudaEngine::evaluate(const Weights& weights, const Batch& batch) {
  ENSURE(!batch.labels.empty() && batch.labels.size() <= microbatch_, "1 to microbatch samples");
  state_->load(weights);
  // Places without a sample compute with data of earlier batches, which no result reads.
  take_test_images(batch);
  take_labels(batch, plan_.resident.evaluate_labels,
              {.smoothing = 0, .count = static_cast<std::uint32_t>(batch.labels.size())});
  require_gpu(
      check(cudaGraphLaunch(evaluation_program_.get(), compute_.get()), "starting an evaluation"));
  const LossOutput output = loss_output();
  return {.loss_sum = output.loss_sum, .correct = output.correct};
}

}  // namespace

Result<std::unique_ptr<DeviceEngine>> make_cuda_engine(const Model& model,
                                                       const EngineRequest& request,
                                                       ChosenDevice device) {
  if (request.microbatch == 0 || request.microbatch > kMicrobatchMax) {
    return Error{Errc::kInvalidInput,
                 fmt::format("a microbatch of {} samples; 1 to {} are possible", request.microbatch,
                             kMicrobatchMax)};
  }
  const int number = device.number;
  auto engine = std::make_unique<CudaEngine>(model, request, std::move(device));
  for (const auto part :
       {&CudaEngine::open_device, &CudaEngine::plan, &CudaEngine::allocate, &CudaEngine::warm_up,
        &CudaEngine::record, &CudaEngine::take_training_set}) {
    if (Result<void> done = ((*engine).*part)(); !done.ok()) {
      return Error{done.error().code, fmt::format("GPU {}: {}", number, done.error().detail)};
    }
  }
  return std::unique_ptr<DeviceEngine>(std::move(engine));
}

}  // namespace mayfly::nn::cuda
