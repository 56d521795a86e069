// A libmayfly_cuda.so with the CPU's engine, whose "device" memory is ordinary memory. With it, all
// code above the engine can be tested without a GPU. In fp16 it computes in fp32 and rounds the
// gradients to fp16 with the loss scale. Environment variables select faults of the device:
//   REHEARSAL_GPU=FAULT       the fault that the probe reports, see facts_of()
//   REHEARSAL_GPU_MIB=N       the amount of free memory
//   REHEARSAL_GPU_AHEAD=PATH  this file gets a byte for every microbatch whose images were expected
//   REHEARSAL_GPU_ROUNDS=1    gradients differ from a CPU's in their last bits
//   REHEARSAL_GPU_FAILS=PATH  after some microbatches the device of the one worker that finds this
//                             file, and removes it, fails in a step
//   REHEARSAL_GPU_OVERFLOWS=N in fp16, about one microbatch of N has a gradient that is not finite
//   REHEARSAL_GPU_PLAN=1      instead of the CPU's engine, the plan of a GPU's steps is executed,
//                             slowly, on the CPU, in fp16 as well
//   REHEARSAL_GPU_FLIPS=PATH  after some updates a weight changes in the device memory of the one
//                             worker that finds this file, and removes it

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/gpu_facts.hpp"
#include "base/module_file.hpp"
#include "base/random.hpp"
#include "base/try_assign.hpp"
#include "nn/cpu/conv_kernel.hpp"
#include "nn/cpu/cpu_engine.hpp"
#include "nn/cuda/cuda_module.hpp"
#include "nn/cuda/device_choice.hpp"
#include "nn/cuda/kernels/kernels.hpp"
#include "nn/cuda/kernels/values.hpp"
#include "tests/gpu/rehearsal/host_feed.hpp"
#include "tests/gpu/rehearsal/host_state.hpp"
#include "tests/unit/nn/cuda/reference_executor.hpp"

namespace mayfly::nn::cuda {
namespace {

/// The variable's value; empty if it is not set.
std::string_view setting(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? std::string_view() : text;
}

/// The ratio of this GPU's gradients to a CPU's: not 1 if REHEARSAL_GPU_ROUNDS is set.
float rounding() {
  constexpr float kOther = 1.0F + 0x1p-18F;
  return setting("REHEARSAL_GPU_ROUNDS").empty() ? 1.0F : kOther;
}

/// A training set in "device" memory. The host's version of the GPU's kernel looks images up.
class HostSet {
 public:
  static Result<HostSet> make(const TrainingSet& from, int width) {
    HostSet set;
    set.resident_ = from.resident;
    set.table_ = from.table;
    set.width_ = static_cast<std::uint32_t>(width);
    set.pixels_.resize(from.resident.samples * from.image_bytes);
    Result<void> read = read_in_pieces(
        from, [&set](std::size_t first, std::span<const std::uint8_t> piece) -> Result<void> {
          std::ranges::copy(piece, set.pixels_.begin() + static_cast<std::ptrdiff_t>(first));
          return {};
        });
    return read.ok() ? Result<HostSet>(std::move(set)) : Result<HostSet>(std::move(read).error());
  }

  /// Looks the images of a batch up by its draws. Each is three planes, as the CPU's engine
  /// expects.
  Batch look_up(const Batch& batch) {
    ENSURE(batch.images.empty() && batch.draws.size() == batch.labels.size() &&
               are_of(resident_, batch.draws),
           "one draw per label, each of a sample of the set");
    const std::size_t area = std::size_t{width_} * width_;
    rows_.resize(batch.draws.size() * area * kImageChannels);
    planes_.resize(batch.draws.size() * area * 3);
    const int failed = host_kernels().gather_images(
        {.pixels = pixels_.data(), .table = table_.front().data(), .width = width_},
        resident_.augmentation, resident_.augment, batch.draws.data(),
        static_cast<std::uint32_t>(batch.draws.size()), Dtype::kFp32, rows_.data(), nullptr);
    ENSURE(failed == 0, "images of this size can be looked up");
    for (std::size_t i = 0; i < planes_.size(); ++i) {
      const std::size_t image = i / area / 3;
      planes_[i] = rows_[(image * area + i % area) * kImageChannels + i / area % 3];
    }
    return {.images = planes_, .labels = batch.labels};
  }

 private:
  ResidentSet resident_;
  datasets::Normaliser::Table table_{};
  std::uint32_t width_ = 0;
  std::vector<std::uint8_t> pixels_;
  std::vector<float> rows_, planes_;
};

/// Leaves gradients where they are computed, as a GPU does, or copies them.
class HostEngine final : public DeviceEngine {
 public:
  HostEngine(std::unique_ptr<StepEngine> engine, std::size_t parameters, std::optional<HostSet> set,
             const EngineRequest& request, std::size_t image_floats)
      : engine_(std::move(engine)),
        gradient_(parameters),
        set_(std::move(set)),
        dtype_(request.dtype) {
    if (request.keeps_state) {
      state_.emplace(gradient_);
    }
    if (!set_.has_value()) {
      feed_calls_.emplace(engine_->microbatch() * image_floats);
      feed_.emplace(*feed_calls_);
    }
  }

  TrainResult train(const Weights& weights, const Batch& batch, float label_smoothing,
                    std::span<float> gradient, std::span<float> statistics,
                    GradientSink& sink) override {
    fail_if_asked();
    const Batch seen = set_.has_value() ? set_->look_up(batch) : brought(batch);
    const Weights used = loaded(weights);
    Finisher finisher(gradient_, gradient, sink);
    if (dtype_ != Dtype::kFp32) {
      finisher.round(dtype_, weights.loss_scale);
    }
    return engine_->train(used, seen, label_smoothing, gradient_, statistics, finisher);
  }
  void prefetch(const Batch& next) override { feed_->expect(next); }
  EvaluationResult evaluate(const Weights& weights, const Batch& batch) override {
    return engine_->evaluate(loaded(weights), batch);
  }
  [[nodiscard]] DeviceOptimizer* optimizer() override {
    return state_.has_value() ? &*state_ : nullptr;
  }
  [[nodiscard]] std::uint32_t microbatch() const override { return engine_->microbatch(); }
  [[nodiscard]] bool holds_training_set() const override { return set_.has_value(); }
  [[nodiscard]] DeviceGradient gradient() const override { return {.gradient = gradient_.data()}; }

 private:
  /// Rounds each part of the gradient that is ready to 16 bits, if round() was called with such a
  /// type, and copies it to `to`, if that is not empty.
  class Finisher final : public GradientSink {
   public:
    Finisher(std::span<float> from, std::span<float> to, GradientSink& sink)
        : from_(from), to_(to), sink_(sink), end_(from.size()) {}
    void round(Dtype dtype, float scale) {
      dtype_ = dtype;
      scale_ = scale;
    }

    void ready_from(std::size_t offset) override {
      const std::span<float> ready = from_.subspan(offset, end_ - offset);
      if (dtype_ == Dtype::kBf16) {
        round_all(ready, on_host::Bf16{});
      }
      if (dtype_ == Dtype::kFp16) {
        spoils_ = spoils_ || (end_ == from_.size() && overflows(ready.back()));
        round_all(ready, on_host::Fp16{});
        ready[0] = offset == 0 && spoils_ ? std::numeric_limits<float>::infinity() : ready[0];
      }
      if (!to_.empty()) {
        std::ranges::transform(ready, to_.begin() + static_cast<std::ptrdiff_t>(offset),
                               [this](float g) { return g * rounding_; });
      }
      end_ = offset;
      sink_.ready_from(offset);
    }

   private:
    template <typename Stored>
    void round_all(std::span<float> gradient, Stored stored) const {
      for (float& g : gradient) {
        on_host::store_value(g * scale_, &stored);
        g = on_host::widen(stored) / scale_;
      }
    }
    /// Depends only on the microbatch, so every worker decides in the same way.
    static bool overflows(float some_gradient) {
      const std::string one_of(setting("REHEARSAL_GPU_OVERFLOWS"));
      return !one_of.empty() && mix64(std::bit_cast<std::uint32_t>(some_gradient)) %
                                        std::strtoull(one_of.c_str(), nullptr, 10) ==
                                    0;
    }

    std::span<float> from_;
    std::span<float> to_;
    GradientSink& sink_;
    std::size_t end_;
    float rounding_ = rounding();
    Dtype dtype_ = Dtype::kFp32;
    float scale_ = 1;
    bool spoils_ = false;
  };

  /// The batch with its images in "device" memory. Brings the next batch's images there before
  /// these are used.
  Batch brought(const Batch& batch) {
    if (batch.id != 0 && !setting("REHEARSAL_GPU_AHEAD").empty()) {
      std::ofstream(std::string(setting("REHEARSAL_GPU_AHEAD")), std::ios::app) << '.';
    }
    feed_->take(batch);
    feed_->bring_expected();
    return {.images = std::span(feed_calls_->images()).first(batch.images.size()),
            .labels = batch.labels};
  }

  Weights loaded(const Weights& weights) {
    Weights used = state_.has_value() ? state_->loaded(weights) : weights;
    used.loss_scale = weights.loss_scale;
    return used;
  }

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
  std::optional<HostSet> set_;
  Dtype dtype_;
  std::optional<HostFeed> feed_calls_;  // none if the training set is on the device
  std::optional<ImageFeed> feed_;
  std::optional<HostState> state_;  // updated with gradient_; none: the host updates the weights
};

/// The facts of a machine with eight GPUs without any fault except that in REHEARSAL_GPU.
CudnnFacts facts_of(int device) {
  CudnnFacts facts{.gpu = {.driver_cuda = 13000,
                           .built_cuda = 13000,
                           .devices = 8,
                           .device_error = "",
                           .device = std::max(device, 0),
                           .capability = 90,
                           .name = "the CPU, for a rehearsal",
                           .uuid = "rehearsal"},
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
  } else if (fault == "two kinds" && device == 1) {
    facts.gpu.name = "another CPU";
  }
  return facts;
}

Result<std::vector<std::string>> probe(int device) {
  return kinds_of(device >= 0 ? std::vector{facts_of(device)}
                              : std::vector{facts_of(0), facts_of(1)});
}

std::size_t free_bytes() {
  const std::string mib(setting("REHEARSAL_GPU_MIB"));
  return mib.empty() ? std::numeric_limits<std::size_t>::max()
                     : std::strtoull(mib.c_str(), nullptr, 10) << 20;
}

Result<std::unique_ptr<DeviceEngine>> make(const Model& model, const EngineRequest& request) {
  TRY(judge(facts_of(request.device)));
  StepPlanOptions options{.dtype = request.dtype, .keeps_state = request.keeps_state};
  if (request.training_set != nullptr) {
    options.set = request.training_set->resident;
  }
  TRY_ASSIGN(const auto plan, make_fitting_plan(model, request.microbatch, options,
                                                {free_bytes(), request.sums_bytes}));
  std::optional<HostSet> images;
  if (plan.set.has_value()) {
    TRY_ASSIGN(images, HostSet::make(*request.training_set, model.image_size));
  }
  const auto image_floats =
      std::size_t{3} * static_cast<std::size_t>(model.image_size * model.image_size);
  if (!setting("REHEARSAL_GPU_PLAN").empty()) {
    EngineRequest rounded = request;
    rounded.dtype = Dtype::kFp32;  // the plan itself rounds gradients where a GPU does
    auto planned = std::make_unique<ReferenceExecutor>(model, request.microbatch,
                                                       StepPlanOptions{.dtype = request.dtype});
    return std::unique_ptr<DeviceEngine>(std::make_unique<HostEngine>(
        std::move(planned), model.parameter_count, std::move(images), rounded, image_floats));
  }
  TRY(cpu::select_conv_kernels("auto"));
  // Computes in fp32 for every requested type, and rounds the gradients afterwards. So bf16 can be
  // tested on a CPU without bf16 instructions.
  if (Result<std::string> isa = cpu::select_isa("auto"); !isa.ok()) {
    return std::move(isa).error();
  }
  TRY_ASSIGN(auto engine, cpu::make_cpu_engine(model, request.microbatch));
  return std::unique_ptr<DeviceEngine>(std::make_unique<HostEngine>(
      std::move(engine), model.parameter_count, std::move(images), request, image_floats));
}

}  // namespace
}  // namespace mayfly::nn::cuda

extern "C" __attribute__((visibility("default"))) const mayfly::nn::cuda::CudaModule*
mayfly_cuda_module() {
  using namespace mayfly::nn::cuda;  // NOLINT: the names above
  static const CudaModule module{.build = mayfly::module_build(), .probe = probe, .make = make};
  return &module;
}
