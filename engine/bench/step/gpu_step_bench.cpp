#include "engine/bench/step/gpu_step_bench.hpp"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/random.hpp"
#include "base/time.hpp"
#include "engine/processes/exit_codes.hpp"
#include "engine/reduction/gradient_wire.hpp"
#include "engine/run/json_text.hpp"
#include "engine/run/run_directory.hpp"
#include "engine/training/device.hpp"
#include "engine/training/device_exchange.hpp"
#include "nn/model_state.hpp"
#include "nn/optimizer.hpp"

namespace mayfly::engine {
namespace {

constexpr std::int32_t kExponent = 4;  // generous: nothing overflows, so nothing is done twice
constexpr float kLearningRate = 1e-4F;
constexpr double kWarmUpShare = 0.2;

/// A worker alone, with the product's sums, wire and update. One thread.
class GpuStepLoop final : public nn::GradientSink {
 public:
  /// `images_per_update` is a multiple of `batch`. `model` outlives the loop.
  GpuStepLoop(const nn::Model& model, std::uint32_t batch, std::uint32_t images_per_update)
      : model_(model),
        batch_(batch),
        microbatches_(images_per_update / batch),
        layout_(model),
        sums_(layout_, true, microbatches_),
        exponents_(layout_.blocks().block_count(), kExponent),
        vector_(layout_.element_count()),
        state_(nn::make_initial_state(model, 1, exponents_.size(), kExponent)) {
    const auto side = static_cast<std::size_t>(model.image_size);
    RandomStream random(CounterRandom(1));
    images_.resize(batch * 3 * side * side);
    labels_.resize(batch);
    for (float& x : images_) {
      x = static_cast<float>(random.unit() * 2 - 1);
    }
    for (std::uint16_t& label : labels_) {
      label = static_cast<std::uint16_t>(random.below(static_cast<std::uint64_t>(model.classes)));
    }
  }

  Result<void> prepare(const StepBenchOptions& options, nn::Dtype dtype) {
    Result<std::unique_ptr<nn::StepEngine>> engine =
        make_gpu_engine(options.device, model_, batch_, dtype);
    if (!engine.ok()) {
      return std::move(engine).error();
    }
    engine_ = std::move(engine).value();
    if (options.sums_on_gpu) {
      Result<DeviceSumsParts> parts =
          make_device_sums(layout_, true, microbatches_, engine_->device_gradient());
      if (!parts.ok()) {
        return std::move(parts).error();
      }
      on_gpu_ = std::move(parts).value();
      sums_.keep_on(*on_gpu_.sums);
    }
    wire_ = make_gradient_wire(Wire::kInt32, layout_, microbatches_, on_gpu_.sums.get());
    wire_->begin_view(1);
    return {};
  }

  /// Whole updates for at least so long, at least one.
  void run_for(double seconds, GpuStepResult& result) {
    result.updates = 0;
    const Instant begin = monotonic_now();
    do {
      one_update();
      ++result.updates;
      result.seconds = to_seconds(monotonic_now() - begin);
    } while (result.seconds < seconds);
  }

  void ready_from(std::size_t offset) override {
    add_buckets(layout_.parameters_offset() + offset, layout_.buckets().size() - 1);
  }

 private:
  void add_buckets(std::size_t ready_from, std::size_t end) {
    while (next_bucket_ < end && layout_.buckets()[next_bucket_].first >= ready_from) {
      sums_.add_bucket(next_bucket_++, vector_.span());
    }
  }

  void one_update() {
    sums_.clear(exponents_);
    const nn::Weights weights{state_.parameters.span(), state_.statistics.span(),
                              value(state_.committed)};
    const std::span<float> all = vector_.span();
    const std::span<float> gradient = all.subspan(layout_.parameters_offset());
    for (std::uint32_t i = 0; i < microbatches_; ++i) {
      next_bucket_ = 0;
      (void)engine_->train(weights, {images_, labels_}, 0,
                           sums_.on_device() ? std::span<float>() : gradient,
                           all.subspan(layout_.statistics_offset(), model_.statistic_count), *this);
      add_buckets(0, layout_.buckets().size());
    }
    for (std::size_t b = 0; b < layout_.buckets().size(); ++b) {
      sums_.settle(b);
      (void)wire_->pack(b, sums_);
      wire_->arrived(b);
    }
    (void)wire_->totals(exponents_, exponents_);
    update();
    state_.committed = next(state_.committed);
  }

  void update() {
    const float scale = 1.0F / static_cast<float>(microbatches_);
    for (std::size_t b = layout_.first_parameter_block(); b < layout_.blocks().block_count(); ++b) {
      const std::size_t first = layout_.blocks().offset(b);
      const std::span<float> mean = vector_.span().subspan(first, layout_.blocks().size(b));
      wire_->mean(b, exponents_, scale, mean);
      const std::size_t at = first - layout_.parameters_offset();
      nn::sgd_update({}, kLearningRate, mean, state_.parameters.span().subspan(at, mean.size()),
                     state_.momentum.span().subspan(at, mean.size()));
    }
  }

  const nn::Model& model_;
  std::uint32_t batch_;
  std::uint32_t microbatches_;
  ReductionLayout layout_;
  GradientSums sums_;
  std::vector<std::int32_t> exponents_;
  AlignedBuffer<float> vector_;
  nn::ModelState state_;
  std::vector<float> images_;
  std::vector<std::uint16_t> labels_;
  std::size_t next_bucket_ = 0;
  std::unique_ptr<nn::StepEngine> engine_;
  DeviceSumsParts on_gpu_;  // empty = none; goes before the engine, whose stream it waits for
  std::unique_ptr<GradientWire> wire_;
};

Result<GpuStepResult> measure(const StepBenchOptions& options, const nn::Model& model,
                              nn::Dtype dtype) {
  const Result<std::uint32_t> global_batch = resolve_global_batch(options, model);
  if (!global_batch.ok()) {
    return global_batch.error();
  }
  const Result<std::string> device = device_identity(options.device);
  if (!device.ok()) {
    return device.error();
  }
  GpuStepResult result;
  result.model = model.name;
  result.dtype = options.dtype;
  result.device = device.value();
  result.image_size = model.image_size;
  result.classes = model.classes;
  result.batch = options.batch;
  result.global_batch = global_batch.value();
  result.sums_on_gpu = options.sums_on_gpu;
  GpuStepLoop loop(model, options.batch, result.global_batch);
  if (Result<void> prepared = loop.prepare(options, dtype); !prepared.ok()) {
    return std::move(prepared).error();
  }
  loop.run_for(options.seconds * kWarmUpShare, result);
  loop.run_for(options.seconds, result);
  return result;
}

double images_per_second(const GpuStepResult& result) {
  return static_cast<double>(result.updates) * result.global_batch / result.seconds;
}

double update_ms(const GpuStepResult& result) {
  return result.seconds * 1e3 / static_cast<double>(result.updates);
}

}  // namespace

std::string to_json_line(const GpuStepResult& result) {
  return JsonObject()
             .add("kind", json_string("gpu_step"))
             .add("model", json_string(result.model))
             .add("image_size", std::to_string(result.image_size))
             .add("classes", std::to_string(result.classes))
             .add("batch", std::to_string(result.batch))
             .add("global_batch", std::to_string(result.global_batch))
             .add("dtype", json_string(result.dtype))
             .add("device", json_string(result.device))
             .add("sums", json_string(result.sums_on_gpu ? "gpu" : "host"))
             .add("updates", std::to_string(result.updates))
             .add("update_ms", fmt::format("{:.4f}", update_ms(result)))
             .add("images_per_second", fmt::format("{:.2f}", images_per_second(result)))
             .text() +
         "\n";
}

std::string to_text(const GpuStepResult& result) {
  return fmt::format(
      "{0} at {1}x{1}, {2} classes, {3}, {4}: microbatch {5}, an update per {6} images, sums on "
      "the {7}\n  {8:.1f} images/s, {9:.3f} ms an update\n",
      result.model, result.image_size, result.classes, result.dtype, result.device, result.batch,
      result.global_batch, result.sums_on_gpu ? "GPU" : "host", images_per_second(result),
      update_ms(result));
}

int bench_gpu_step(const StepBenchOptions& options, const nn::Model& model, nn::Dtype dtype) {
  const Result<GpuStepResult> result = measure(options, model, dtype);
  if (!result.ok()) {
    log::error(result.error().detail);
    return kExitUsage;
  }
  fmt::print("{}", options.json ? to_json_line(result.value()) : to_text(result.value()));
  return kExitDone;
}

}  // namespace mayfly::engine
