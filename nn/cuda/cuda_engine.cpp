#include "nn/cuda/cuda_engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "base/check.hpp"
#include "base/gpu_failure.hpp"
#include "nn/cuda/cuda_handles.hpp"
#include "nn/cuda/device_feed.hpp"
#include "nn/cuda/gradient_copy.hpp"
#include "nn/cuda/resident_set.hpp"
#include "nn/cuda/resident_state.hpp"
#include "nn/cuda/running_step.hpp"
#include "nn/cuda/staging.hpp"

namespace mayfly::nn::cuda {
namespace {

constexpr std::uint32_t kMicrobatchMax = 4096;

using OwnedCudnn = Owned<cudnnHandle_t, &cudnnDestroy>;

class CudaEngine final : public StepEngine {
 public:
  CudaEngine(const Model& model, std::uint32_t microbatch, const CudaEngineOptions& options)
      : model_(model), microbatch_(microbatch), options_(options) {}
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
  [[nodiscard]] bool prefetches_input() const override { return feed_.has_value(); }
  void expect(const Batch& next) override {
    ENSURE(feed_.has_value() && next.labels.size() == microbatch_, "images come from the host");
    feed_->expect(next);
  }
  EvaluationResult evaluate(const Weights& weights, const Batch& batch) override;
  [[nodiscard]] std::uint32_t microbatch() const override { return microbatch_; }
  [[nodiscard]] std::string remark() const override { return step_.conv_plans.use().remark(); }
  [[nodiscard]] std::string engines() const override {
    return step_.conv_plans.use().fingerprint();
  }
  [[nodiscard]] std::vector<std::string> warnings() const override {
    return step_.conv_plans.use().warnings();
  }
  [[nodiscard]] bool holds_training_set() const override { return step_.plan.set.has_value(); }
  [[nodiscard]] std::optional<DeviceGradient> device_gradient() const override {
    return DeviceGradient{.device = options_.device,
                          .is_shared = options_.is_shared,
                          .gradient = step_.executor->floats(step_.plan.resident.gradient),
                          .stream = stream()};
  }
  [[nodiscard]] DeviceOptimizer* optimizer() override {
    return state_->can_update() ? &*state_ : nullptr;
  }

 private:
  [[nodiscard]] Stream stream() const { return compute_.get(); }
  [[nodiscard]] void* at(TensorId id) const { return step_.executor->at(id); }
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
  CudaEngineOptions options_;

  OwnedStream compute_;
  OwnedCudnn cudnn_;
  RunningStep step_;
  Staging staging_;
  GradientCopy gradient_copy_;
  std::optional<DeviceFeed> feed_calls_;  ///< none if the training set is on the device
  std::optional<ImageFeed> feed_;         ///< goes with it
  std::optional<ResidentState> state_;
  GraphProgram evaluation_program_;
  std::vector<GraphProgram> training_programs_;  ///< by segment
};

CudaEngine::~CudaEngine() {
  // Nothing may be in flight when memory and graphs go. After a failure there is nothing to wait
  // for, and nobody to tell.
  if (compute_.get() != nullptr) {
    (void)cudaStreamSynchronize(compute_.get());
  }
  gradient_copy_.settle();
  if (feed_calls_.has_value()) {
    feed_calls_->settle();
  }
}

Result<void> CudaEngine::open_device() {
  TRY(check(cudaSetDevice(options_.device), "choosing the device"));
  Result<OwnedStream> made = make_stream();
  if (!made.ok()) {
    return std::move(made).error();
  }
  compute_ = std::move(made).value();
  cudnnHandle_t handle = nullptr;
  TRY(cudnn::check(cudnnCreate(&handle), "starting"));
  cudnn_ = OwnedCudnn(handle);
  return cudnn::check(cudnnSetStream(handle, compute_.get()), "setting the stream");
}

Result<void> CudaEngine::plan() {
  return step_.prepare(model_, microbatch_, options_, cudnn_.get(), compute_.get());
}

Result<void> CudaEngine::allocate() {
  Result<Staging> staging = make_staging(model_, microbatch_);
  if (!staging.ok()) {
    return std::move(staging).error();
  }
  staging_ = std::move(staging).value();
  Result<GradientCopy> copy =
      GradientCopy::make(model_.parameter_count, step_.plan.training.size());
  if (!copy.ok()) {
    return std::move(copy).error();
  }
  gradient_copy_ = std::move(copy).value();
  return holds_training_set() ? Result<void>() : make_feed();
}

Result<void> CudaEngine::make_feed() {
  Result<DeviceFeed> feed = DeviceFeed::make(compute_.get(), at(step_.plan.resident.next_images),
                                             at(step_.plan.resident.train_images),
                                             microbatch_ * image_floats(model_) * sizeof(float));
  if (!feed.ok()) {
    return std::move(feed).error();
  }
  feed_calls_.emplace(std::move(feed).value());
  feed_.emplace(*feed_calls_);
  return {};
}

/// Everything once with zeros, not recorded: kernels are loaded when they are first started, which
/// a recording may not do; and what the device refuses of them is found here, where it can be said.
Result<void> CudaEngine::warm_up() {
  if (Result<void> loaded =
          check(static_cast<cudaError_t>(device_kernels().load()), "loading our kernels");
      !loaded.ok()) {
    return loaded;
  }
  Result<void> table = upload(step_.plan.resident.filter_table, step_.plan.filters.data(),
                              step_.plan.filters.size() * sizeof(Filter));
  if (!table.ok()) {
    return table;
  }
  const OperationRange all{0, step_.plan.operations.size()};
  TRY(step_.executor->run(all, stream()));
  return check(cudaDeviceSynchronize(), "running a step of zeros");
}

StatePlaces CudaEngine::places() const {
  const ResidentTensors& r = step_.plan.resident;
  const std::size_t parameters = model_.parameter_count;
  return {.parameters = {step_.executor->floats(r.parameters), parameters},
          .statistics = {step_.executor->floats(r.running_statistics), model_.statistic_count},
          .gradient = {step_.executor->floats(r.gradient), parameters},
          .momentum = {step_.executor->floats(r.momentum), options_.keeps_state ? parameters : 0}};
}

Result<void> CudaEngine::record() {
  const auto program_of = [this](const OperationRange& range) {
    return capture(compute_.get(), [&] { return step_.executor->run(range, stream()); });
  };
  Result<GraphProgram> loading = program_of(step_.plan.load);
  Result<GraphProgram> evaluation = program_of(step_.plan.evaluation);
  for (Result<GraphProgram>* program : {&loading, &evaluation}) {
    if (!program->ok()) {
      return program->error();
    }
  }
  Result<ResidentState> state =
      ResidentState::make(options_.device, compute_.get(), places(), std::move(loading).value());
  if (!state.ok()) {
    return std::move(state).error();
  }
  state_.emplace(std::move(state).value());
  evaluation_program_ = std::move(evaluation).value();
  for (const Segment& segment : step_.plan.training) {
    Result<GraphProgram> program = program_of(segment.operations);
    if (!program.ok()) {
      return std::move(program).error();
    }
    training_programs_.push_back(std::move(program).value());
  }
  return {};
}

Result<void> CudaEngine::take_training_set() {
  return holds_training_set()
             ? copy_to_device(*options_.training_set, at(step_.plan.resident.set_pixels),
                              at(step_.plan.resident.set_table), stream())
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

/// The staging memory is free, here and below: whoever used it last has waited for the device.
void CudaEngine::take_test_images(const Batch& batch) {
  check_images(batch);
  std::memcpy(staging_.images.get(), batch.images.data(), batch.images.size_bytes());
  require_gpu(upload(step_.plan.resident.evaluate_images, staging_.images.get(),
                     batch.images.size_bytes()));
}

void CudaEngine::take_draws(const Batch& batch) {
  ENSURE(batch.draws.size() == batch.labels.size() && are_of(*step_.plan.set, batch.draws),
         "one draw per label, each of a sample of the set");
  std::memcpy(staging_.draws.get(), batch.draws.data(), batch.draws.size_bytes());
  require_gpu(
      upload(step_.plan.resident.train_draws, staging_.draws.get(), batch.draws.size_bytes()));
}

void CudaEngine::take_labels(const Batch& batch, TensorId labels, const LossInput& input) {
  const std::size_t label_bytes = microbatch_ * sizeof(std::uint16_t);
  std::memset(staging_.labels.get(), 0, label_bytes);
  std::memcpy(staging_.labels.get(), batch.labels.data(), batch.labels.size_bytes());
  std::memcpy(staging_.loss_input.get(), &input, sizeof input);
  require_gpu(upload(labels, staging_.labels.get(), label_bytes));
  require_gpu(upload(step_.plan.resident.loss_input, staging_.loss_input.get(), sizeof input));
}

/// Hands over what comes to the host, segment by segment.
void CudaEngine::bring_gradient(std::span<float> gradient, GradientSink& sink) {
  std::size_t end = gradient.size();
  for (std::size_t i = 0; i < step_.plan.training.size(); ++i) {
    const std::size_t first = step_.plan.training[i].ready_from;
    gradient_copy_.bring(i, first, end, gradient);
    end = first;
    sink.ready_from(first);
  }
}

LossOutput CudaEngine::loss_output() {
  require_gpu(download(staging_.loss_output.get(), at(step_.plan.resident.loss_output),
                       sizeof(LossOutput)));
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
  take_labels(batch, step_.plan.resident.train_labels,
              training_input(label_smoothing, microbatch_, weights.loss_scale));
  // All of the step is given to the device before anything is waited for.
  std::size_t end = model_.parameter_count;
  for (std::size_t i = 0; i < training_programs_.size(); ++i) {
    require_gpu(
        check(cudaGraphLaunch(training_programs_[i].get(), compute_.get()), "starting a segment"));
    if (stays) {
      sink.ready_from(step_.plan.training[i].ready_from);
    } else {
      gradient_copy_.start(i, compute_.get(), step_.executor->floats(step_.plan.resident.gradient),
                           step_.plan.training[i].ready_from, end);
    }
    end = step_.plan.training[i].ready_from;
  }
  require_gpu(download(staging_.statistics.get(), at(step_.plan.resident.batch_statistics),
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
  // Places without a sample compute on what earlier batches left; no result reads them.
  take_test_images(batch);
  take_labels(batch, step_.plan.resident.evaluate_labels,
              {.smoothing = 0, .count = static_cast<std::uint32_t>(batch.labels.size())});
  require_gpu(
      check(cudaGraphLaunch(evaluation_program_.get(), compute_.get()), "starting an evaluation"));
  const LossOutput output = loss_output();
  return {.loss_sum = output.loss_sum, .correct = output.correct};
}

}  // namespace

Result<std::unique_ptr<StepEngine>> make_cuda_engine(const Model& model, std::uint32_t microbatch,
                                                     const CudaEngineOptions& options) {
  if (microbatch == 0 || microbatch > kMicrobatchMax) {
    return Error{Errc::kInvalidInput,
                 fmt::format("a microbatch of {} samples; 1 to {} are possible", microbatch,
                             kMicrobatchMax)};
  }
  auto engine = std::make_unique<CudaEngine>(model, microbatch, options);
  for (const auto part :
       {&CudaEngine::open_device, &CudaEngine::plan, &CudaEngine::allocate, &CudaEngine::warm_up,
        &CudaEngine::record, &CudaEngine::take_training_set}) {
    if (Result<void> done = ((*engine).*part)(); !done.ok()) {
      return Error{done.error().code,
                   fmt::format("GPU {}: {}", options.device, done.error().detail)};
    }
  }
  return std::unique_ptr<StepEngine>(std::move(engine));
}

}  // namespace mayfly::nn::cuda
