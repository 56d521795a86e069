// libmayfly_cuda.so: the CUDA engine as a module that is loaded at run time.

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/module_file.hpp"
#include "nn/cuda/conv_trial.hpp"
#include "nn/cuda/cuda_engine.hpp"
#include "nn/cuda/cuda_module.hpp"
#include "nn/cuda/cudnn_facts.hpp"
#include "nn/cuda/device_claim.hpp"

namespace mayfly::nn::cuda {
namespace {

Result<DeviceIdentity> probe(int device) {
  const CudnnFacts facts = read_cudnn_facts(device == kAnyDevice ? 0 : device);
  TRY(judge(facts));
  return DeviceIdentity{identity_of(facts), kind_of(facts)};
}

/// An engine, and the GPU that is its own for as long as it lives.
class ClaimingEngine final : public StepEngine {
 public:
  ClaimingEngine(DeviceClaim claim, std::unique_ptr<StepEngine> engine)
      : claim_(std::move(claim)), engine_(std::move(engine)) {}

  TrainResult train(const Weights& weights, const Batch& batch, float label_smoothing,
                    std::span<float> gradient, std::span<float> statistics,
                    GradientSink& sink) override {
    return engine_->train(weights, batch, label_smoothing, gradient, statistics, sink);
  }
  [[nodiscard]] bool prefetches_input() const override { return engine_->prefetches_input(); }
  void expect(const Batch& next) override { engine_->expect(next); }
  EvaluationResult evaluate(const Weights& weights, const Batch& batch) override {
    return engine_->evaluate(weights, batch);
  }
  [[nodiscard]] std::uint32_t microbatch() const override { return engine_->microbatch(); }
  [[nodiscard]] bool holds_training_set() const override { return engine_->holds_training_set(); }
  [[nodiscard]] std::optional<DeviceGradient> device_gradient() const override {
    return engine_->device_gradient();
  }
  [[nodiscard]] std::string remark() const override { return engine_->remark(); }
  [[nodiscard]] std::string engines() const override { return engine_->engines(); }
  [[nodiscard]] std::vector<std::string> warnings() const override { return engine_->warnings(); }
  [[nodiscard]] DeviceOptimizer* optimizer() override { return engine_->optimizer(); }

 private:
  DeviceClaim claim_;  // given back after the engine is gone
  std::unique_ptr<StepEngine> engine_;
};

struct Choice {
  int device = 0;
  DeviceClaim claim;       ///< none if it is shared
  bool is_shared = false;  ///< another worker of this machine has claimed it
};

std::string claims_folder() {
  std::error_code no_such_folder;
  const std::string folder = std::filesystem::temp_directory_path(no_such_folder).string();
  return folder.empty() ? "/tmp" : folder;
}

Result<Choice> first_free(int devices) {
  const std::string folder = claims_folder();
  for (int device = 0; device < devices; ++device) {
    const CudnnFacts facts = read_cudnn_facts(device);
    if (!judge(facts).ok()) {
      continue;
    }
    Result<DeviceClaim> claim = DeviceClaim::take(folder, facts.gpu.bus);
    if (claim.ok()) {
      return Choice{device, std::move(claim).value()};
    }
    if (claim.error().code != Errc::kRefused) {
      return std::move(claim).error();
    }
  }
  return Error{Errc::kRefused,
               fmt::format("other workers use all {} GPUs of this machine; start fewer, or name "
                           "one to share: device cuda:N",
                           devices)};
}

/// A GPU that the user or the launcher chose may have several workers.
Choice named(int device) {
  Result<DeviceClaim> claim = DeviceClaim::take(claims_folder(), read_cudnn_facts(device).gpu.bus);
  if (claim.ok()) {
    return {device, std::move(claim).value()};
  }
  return {device, {}, claim.error().code == Errc::kRefused};
}

Result<Choice> choose(int device) {
  const CudnnFacts facts = read_cudnn_facts(device == kAnyDevice ? 0 : device);
  TRY(judge(facts));
  if (device != kAnyDevice) {
    return named(device);
  }
  if (const int number = local_number(); number >= 0) {
    return named(number % facts.gpu.devices);
  }
  return first_free(facts.gpu.devices);
}

Result<std::unique_ptr<StepEngine>> make(const Model& model, const EngineRequest& request) {
  Result<Choice> choice = choose(request.device);
  if (!choice.ok()) {
    return std::move(choice).error();
  }
  Result<std::unique_ptr<StepEngine>> engine =
      make_cuda_engine(model, request.microbatch,
                       {.device = choice.value().device,
                        .is_shared = choice.value().is_shared,
                        .dtype = request.dtype,
                        .sums_bytes = request.sums_bytes,
                        .keeps_state = request.keeps_state,
                        .training_set = request.training_set,
                        .engines = request.engines});
  if (!engine.ok()) {
    return std::move(engine).error();
  }
  return std::unique_ptr<StepEngine>(
      std::make_unique<ClaimingEngine>(std::move(choice.value().claim), std::move(engine).value()));
}

Result<void> time_engines(const std::set<ConvKey>& convolutions, const EngineTimingRequest& request,
                          const EngineTimingSink& take) {
  const Result<Choice> choice = choose(request.device);
  if (!choice.ok()) {
    return choice.error();
  }
  EngineTimingRequest chosen = request;
  chosen.device = choice.value().device;
  return time_on_device(convolutions, chosen, take);
}

}  // namespace
}  // namespace mayfly::nn::cuda

extern "C" __attribute__((visibility("default"))) const mayfly::nn::cuda::CudaModule*
mayfly_cuda_module() {
  using namespace mayfly::nn::cuda;  // NOLINT: the names above
  static const CudaModule module{
      .build = mayfly::module_build(), .probe = probe, .make = make, .time_engines = time_engines};
  return &module;
}
