// A libmayfly_cuda.so whose engine is the CPU's, with a "device" that is ordinary memory: so that
// training on GPUs can be rehearsed, with everything above the engine, where there is no GPU.

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/module_file.hpp"
#include "nn/cpu/conv_kernel.hpp"
#include "nn/cpu/cpu_engine.hpp"
#include "nn/cuda/cuda_module.hpp"
#include "nn/cuda/memory_fit.hpp"

namespace mayfly::nn::cuda {
namespace {

/// Leaves gradients where they are computed, as a GPU does, or copies them.
class HostEngine final : public StepEngine {
 public:
  HostEngine(std::unique_ptr<StepEngine> engine, std::size_t parameters)
      : engine_(std::move(engine)), gradient_(parameters) {}

  TrainResult train(const Weights& weights, const Batch& batch, float label_smoothing,
                    std::span<float> gradient, std::span<float> statistics,
                    GradientSink& sink) override {
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
      std::copy(from_.begin() + static_cast<std::ptrdiff_t>(offset),
                from_.begin() + static_cast<std::ptrdiff_t>(end_),
                to_.begin() + static_cast<std::ptrdiff_t>(offset));
      end_ = offset;
      sink_.ready_from(offset);
    }

   private:
    std::span<const float> from_;
    std::span<float> to_;
    GradientSink& sink_;
    std::size_t end_;
  };

  std::unique_ptr<StepEngine> engine_;
  std::vector<float> gradient_;
};

Result<std::string> probe(int /*device*/) {
  return std::string("the CPU, for a rehearsal");
}

/// A GPU may be pretended to have so little memory.
std::size_t free_bytes() {
  const char* const mib = std::getenv("REHEARSAL_GPU_MIB");
  return mib == nullptr ? std::numeric_limits<std::size_t>::max()
                        : std::strtoull(mib, nullptr, 10) << 20;
}

Result<std::unique_ptr<StepEngine>> make(const Model& model, const EngineRequest& request) {
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
