// A libmayfly_cuda.so whose engine is the CPU's, with a "device" that is ordinary memory: so that
// training on GPUs can be rehearsed, with everything above the engine, where there is no GPU. The
// environment says what is wrong with the device:
//   REHEARSAL_GPU=FAULT       what the probe finds, see facts_of()
//   REHEARSAL_GPU_MIB=N       how much memory is free
//   REHEARSAL_GPU_ROUNDS=1    gradients differ from a CPU's in their last bits
//   REHEARSAL_GPU_FAILS=PATH  after some microbatches the device of the one worker that finds this
//                             file, and removes it, fails in a step

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/gpu_failure.hpp"
#include "base/module_file.hpp"
#include "nn/cpu/conv_kernel.hpp"
#include "nn/cpu/cpu_engine.hpp"
#include "nn/cuda/cuda_module.hpp"
#include "nn/cuda/cudnn_facts.hpp"
#include "nn/cuda/memory_fit.hpp"

namespace mayfly::nn::cuda {
namespace {

/// Empty if it is not set.
std::string_view setting(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? std::string_view() : text;
}

/// What a GPU's gradients are, beside a CPU's: so much larger, if it rounds otherwise.
float rounding() {
  constexpr float kOther = 1.0F + 0x1p-18F;
  return setting("REHEARSAL_GPU_ROUNDS").empty() ? 1.0F : kOther;
}

/// Leaves gradients where they are computed, as a GPU does, or copies them.
class HostEngine final : public StepEngine {
 public:
  HostEngine(std::unique_ptr<StepEngine> engine, std::size_t parameters)
      : engine_(std::move(engine)), gradient_(parameters) {}

  TrainResult train(const Weights& weights, const Batch& batch, float label_smoothing,
                    std::span<float> gradient, std::span<float> statistics,
                    GradientSink& sink) override {
    fail_if_asked();
    if (gradient.empty()) {
      return engine_->train(weights, batch, label_smoothing, gradient_, statistics, sink);
    }
    Copier copier(gradient_, gradient, sink);
    return engine_->train(weights, batch, label_smoothing, gradient_, statistics, copier);
  }
  EvaluationResult evaluate(const Weights& weights, const Batch& batch) override {
    return engine_->evaluate(weights, batch);
  }
  [[nodiscard]] std::uint32_t microbatch() const override { return engine_->microbatch(); }
  [[nodiscard]] std::optional<DeviceGradient> device_gradient() const override {
    return DeviceGradient{.gradient = gradient_.data()};
  }

 private:
  class Copier final : public GradientSink {
   public:
    Copier(std::span<const float> from, std::span<float> to, GradientSink& sink)
        : from_(from), to_(to), sink_(sink), end_(to.size()) {}
    void ready_from(std::size_t offset) override {
      std::transform(from_.begin() + static_cast<std::ptrdiff_t>(offset),
                     from_.begin() + static_cast<std::ptrdiff_t>(end_),
                     to_.begin() + static_cast<std::ptrdiff_t>(offset),
                     [this](float g) { return g * rounding_; });
      end_ = offset;
      sink_.ready_from(offset);
    }

   private:
    std::span<const float> from_;
    std::span<float> to_;
    GradientSink& sink_;
    std::size_t end_;
    float rounding_ = rounding();
  };

  void fail_if_asked() {
    constexpr int kHealthySteps = 20;
    const char* const path = std::getenv("REHEARSAL_GPU_FAILS");
    if (path != nullptr && ++steps_ > kHealthySteps && ::unlink(path) == 0) {
      require_gpu(Error{Errc::kUnsupported, "computing: an illegal memory access was encountered"});
    }
  }

  std::unique_ptr<StepEngine> engine_;
  std::vector<float> gradient_;
  int steps_ = 0;
};

/// A machine with eight GPUs that can do everything, less what REHEARSAL_GPU says is wrong with it.
CudnnFacts facts_of(int device) {
  CudnnFacts facts{.gpu = {.driver_cuda = 13000,
                           .built_cuda = 13000,
                           .devices = 8,
                           .device_error = "",
                           .device = device == kAnyDevice ? 0 : device,
                           .capability = 90,
                           .name = "the CPU, for a rehearsal",
                           .bus = "rehearsal"},
                   .found_cudnn = 91900};
  const std::string_view fault = setting("REHEARSAL_GPU");
  if (fault == "no driver") {
    facts.gpu.driver_cuda = 0;
  } else if (fault == "old driver") {
    facts.gpu.driver_cuda = 12080;
  } else if (fault == "broken") {
    facts.gpu.device_error = "system not yet initialized";
  } else if (fault == "no device") {
    facts.gpu.devices = 0;
  } else if (fault == "old device") {
    facts.gpu.capability = 70;
  } else if (fault == "old cudnn") {
    facts.found_cudnn = 90700;
  }
  return facts;
}

Result<std::string> probe(int device) {
  const CudnnFacts facts = facts_of(device);
  if (Result<void> fit = judge(facts); !fit.ok()) {
    return std::move(fit).error();
  }
  return identity_of(facts);
}

std::size_t free_bytes() {
  const std::string mib(setting("REHEARSAL_GPU_MIB"));
  return mib.empty() ? std::numeric_limits<std::size_t>::max()
                     : std::strtoull(mib.c_str(), nullptr, 10) << 20;
}

Result<std::unique_ptr<StepEngine>> make(const Model& model, const EngineRequest& request) {
  if (Result<void> fit = judge(facts_of(request.device)); !fit.ok()) {
    return std::move(fit).error();
  }
  const StepPlanOptions options{.dtype = request.dtype};
  const StepPlan plan = make_step_plan(model, request.microbatch, options);
  if (Result<void> fits =
          check_fit(model, request.microbatch, options, plan, {free_bytes(), request.sums_bytes});
      !fits.ok()) {
    return std::move(fits).error();
  }
  if (Result<void> set = cpu::select_conv_kernels("auto"); !set.ok()) {
    return std::move(set).error();
  }
  if (Result<std::string> isa = cpu::select_isa("auto", request.dtype); !isa.ok()) {
    return std::move(isa).error();
  }
  Result<std::unique_ptr<StepEngine>> engine =
      cpu::make_cpu_engine(model, request.microbatch, {.dtype = request.dtype});
  if (!engine.ok()) {
    return engine;
  }
  return std::unique_ptr<StepEngine>(
      std::make_unique<HostEngine>(std::move(engine).value(), model.parameter_count));
}

}  // namespace
}  // namespace mayfly::nn::cuda

extern "C" __attribute__((visibility("default"))) const mayfly::nn::cuda::CudaModule*
mayfly_cuda_module() {
  using namespace mayfly::nn::cuda;  // NOLINT: the names above
  static const CudaModule module{.build = mayfly::module_build(), .probe = probe, .make = make};
  return &module;
}
