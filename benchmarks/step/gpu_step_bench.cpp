#include "benchmarks/step/gpu_step_bench.hpp"

#include <fmt/format.h>

#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/random.hpp"
#include "base/try_assign.hpp"
#include "benchmarks/step/step_work.hpp"
#include "engine/membership/exit_codes.hpp"
#include "engine/network/device.hpp"
#include "engine/reduction/gradient_wire.hpp"
#include "engine/run/record_json.hpp"
#include "engine/training/backend.hpp"
#include "nn/device_engine.hpp"
#include "nn/optimizer.hpp"

namespace mayfly::bench {
namespace {

/// Random images for a set in the GPU's memory; all channels are alike.
nn::cuda::TrainingSet synthetic_set(const nn::Model& model, std::uint64_t samples) {
  const auto side = static_cast<std::size_t>(model.image_size);
  nn::cuda::TrainingSet set;
  set.resident.samples = samples;
  set.table = datasets::Normaliser({0.5F, 0.5F, 0.5F}, {0.25F, 0.25F, 0.25F}).table();
  set.image_bytes = 3 * side * side;
  set.read = [](std::uint64_t sample, std::span<std::uint8_t> pixels) -> Result<void> {
    const CounterRandom random = CounterRandom(1).split(sample);
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = static_cast<std::uint8_t>(random.bits(i));
    }
    return {};
  };
  return set;
}

/// For fp16. The scale never changes, so it must be one with which nothing overflows.
constexpr nn::LossScale kLossScale{.exponent = 8};

/// A worker without other members, with Mayfly's sums, wire format and update. One thread.
class GpuStepLoop final : public nn::GradientSink {
 public:
  /// As StepWork.
  GpuStepLoop(const nn::Model& model, std::uint32_t batch, std::uint32_t images_per_update,
              bool exact)
      : work_(model, batch, images_per_update, exact) {}

  Result<void> prepare(const StepBenchOptions& options, nn::Dtype dtype) {
    if (dtype == nn::Dtype::kFp16) {
      work_.state.loss_scale = kLossScale;
    }
    // Two microbatches, used in turn.
    samples_ = std::uint64_t{2} * work_.microbatch_size;
    const nn::cuda::TrainingSet set = synthetic_set(work_.model, samples_);
    Result<std::unique_ptr<nn::DeviceEngine>> engine = engine::make_gpu_engine(
        options.device, work_.model,
        {.microbatch = work_.microbatch_size,
         .dtype = dtype,
         .sums_bytes =
             options.sums_on_gpu ? engine::device_sums_bytes(work_.layout, options.exact) : 0,
         .keeps_state = options.sums_on_gpu,
         .training_set = options.images_on_gpu ? &set : nullptr});
    if (!engine.ok()) {
      return std::move(engine).error();
    }
    engine_ = std::move(engine).value();
    if (options.images_on_gpu && !engine_->holds_training_set()) {
      return Error{Errc::kUnsupported,
                   fmt::format("{} images do not fit into the memory of the GPU beside the step; "
                               "choose a smaller batch, or --images host",
                               samples_)};
    }
    draws_.resize(engine_->holds_training_set() ? work_.microbatch_size : 0);
    if (options.sums_on_gpu) {
      TRY_ASSIGN(on_gpu_, engine::make_device_sums(work_.layout, options.exact, work_.microbatches,
                                                   engine_->gradient()));
      work_.sums.keep_on(*on_gpu_.sums);
    }
    wire_ = engine::make_gradient_wire(options.exact ? engine::Wire::kInt32 : engine::Wire::kFp32,
                                       work_.layout, work_.microbatches, on_gpu_.sums.get());
    wire_->begin_view(1);
    return {};
  }

  [[nodiscard]] UpdateCount run_for(double seconds) {
    return run_updates(seconds, [this] { one_update(); });
  }

  void ready_from(std::size_t offset) override {
    add_buckets(work_.layout.parameters_offset() + offset, work_.layout.buckets().size() - 1);
  }

 private:
  void add_buckets(std::size_t ready_from, std::size_t end) {
    while (next_bucket_ < end && work_.layout.buckets()[next_bucket_].first >= ready_from) {
      work_.sums.add_bucket(next_bucket_++, work_.vector.span());
    }
  }

  nn::Batch next_batch() {
    if (draws_.empty()) {
      nn::Batch batch = work_.batch();
      batch.id = expected_;
      nn::Batch next = batch;
      next.id = ++expected_;
      engine_->prefetch(next);
      return batch;
    }
    for (nn::SampleDraw& draw : draws_) {
      draw.sample = next_sample_++ % samples_;
    }
    return {.images = {}, .labels = work_.labels, .draws = draws_};
  }

  void one_update() {
    work_.sums.clear(work_.exponents);
    const std::size_t buckets = work_.layout.buckets().size();
    for (std::uint32_t i = 0; i < work_.microbatches; ++i) {
      next_bucket_ = 0;
      (void)engine_->train(work_.weights(), next_batch(), 0,
                           work_.sums.on_device() ? std::span<float>() : work_.gradient(),
                           work_.statistics(), *this);
      add_buckets(0, buckets);
    }
    for (std::size_t b = 0; b < buckets; ++b) {
      work_.sums.settle(b);
      (void)wire_->pack(b, work_.sums);
      wire_->arrived(b);
    }
    (void)wire_->totals(work_.exponents, work_.exponents);
    const float scale = 1.0F / static_cast<float>(work_.microbatches);
    engine_->optimizer() != nullptr ? update_on_gpu(scale) : update(scale);
    work_.state.committed = next(work_.state.committed);
  }

  void update_on_gpu(float scale) {
    nn::DeviceOptimizer& optimizer = *engine_->optimizer();
    if (fetched_.valid()) {
      fetched_.get();
    }
    on_gpu_.sums->take_mean(scale, optimizer.mean_gradient());
    optimizer.update({.weights = work_.weights(),
                      .momentum = work_.state.momentum.span(),
                      .options = {},
                      .learning_rate = StepWork::kLearningRate,
                      .version = value(next(work_.state.committed))});
    // The part of the state that a worker hashes for comparison in every step, while the next step
    // is computed.
    fetched_ = std::async(std::launch::async, [this, &optimizer] {
      optimizer.fetch(nn::DevicePart::kParameters, 0, work_.state.parameters.span());
    });
  }

  void update(float scale) {
    const engine::ReductionLayout& layout = work_.layout;
    for (std::size_t b = layout.first_parameter_block(); b < layout.blocks().block_count(); ++b) {
      const std::size_t at = layout.blocks().offset(b) - layout.parameters_offset();
      const std::span<float> mean = work_.gradient().subspan(at, layout.blocks().size(b));
      wire_->mean(b, work_.exponents, scale, mean);
      nn::sgd_update({}, StepWork::kLearningRate, mean,
                     work_.state.parameters.span().subspan(at, mean.size()),
                     work_.state.momentum.span().subspan(at, mean.size()));
    }
  }

  StepWork work_;
  std::uint64_t samples_ = 0;          // samples in the GPU's memory
  std::uint64_t next_sample_ = 0;      // increases with every batch
  std::uint64_t expected_ = 0;         // id of the batch that was announced to the engine
  std::vector<nn::SampleDraw> draws_;  // empty: images are copied from the host
  std::size_t next_bucket_ = 0;
  std::unique_ptr<nn::DeviceEngine> engine_;
  engine::DeviceSumsParts
      on_gpu_;  // empty = none; destroyed before the engine, whose stream it waits for
  std::unique_ptr<engine::GradientWire> wire_;
  std::future<void> fetched_;  // the last member, because its thread uses the others
};

Result<GpuStepResult> measure(const StepBenchOptions& options, const nn::Model& model,
                              nn::Dtype dtype) {
  TRY_ASSIGN(const std::uint32_t global_batch, resolve_global_batch(options, model));
  TRY_ASSIGN(const std::string device, engine::device_identity(options.device));
  GpuStepResult result;
  result.model = model.name;
  result.dtype = options.dtype;
  result.device = device;
  result.image_size = model.image_size;
  result.classes = model.classes;
  result.batch = options.batch;
  result.global_batch = global_batch;
  result.exact = options.exact;
  result.sums_on_gpu = options.sums_on_gpu;
  result.images_on_gpu = options.images_on_gpu;
  GpuStepLoop loop(model, options.batch, result.global_batch, options.exact);
  TRY(loop.prepare(options, dtype));
  (void)loop.run_for(options.seconds * kWarmUpShare);
  const UpdateCount count = loop.run_for(options.seconds);
  result.updates = count.updates;
  result.seconds = count.seconds;
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
  return engine::json_text({{"kind", "gpu_step"},
                            {"model", result.model},
                            {"image_size", result.image_size},
                            {"classes", result.classes},
                            {"batch", result.batch},
                            {"global_batch", result.global_batch},
                            {"dtype", result.dtype},
                            {"device", result.device},
                            {"reduction", result.exact ? "exact" : "fp32"},
                            {"sums", result.sums_on_gpu ? "gpu" : "host"},
                            {"images", result.images_on_gpu ? "gpu" : "host"},
                            {"updates", result.updates},
                            {"update_ms", engine::rounded(update_ms(result), 4)},
                            {"images_per_second", engine::rounded(images_per_second(result), 2)}}) +
         "\n";
}

std::string to_text(const GpuStepResult& result) {
  return fmt::format(
      "{0} at {1}x{1}, {2} classes, {3}, {4}: microbatch {5}, an update per {6} images, {11} "
      "sums on the {7}, images on the {8}\n  {9:.1f} images/s, {10:.3f} ms an update\n",
      result.model, result.image_size, result.classes, result.dtype, result.device, result.batch,
      result.global_batch, result.sums_on_gpu ? "GPU" : "host",
      result.images_on_gpu ? "GPU" : "host", images_per_second(result), update_ms(result),
      result.exact ? "exact" : "fp32");
}

int bench_gpu_step(const StepBenchOptions& options, const nn::Model& model, nn::Dtype dtype) {
  const Result<GpuStepResult> result = measure(options, model, dtype);
  if (!result.ok()) {
    log::error(result.error().detail);
    return engine::kExitUsage;
  }
  fmt::print("{}", options.json ? to_json_line(result.value()) : to_text(result.value()));
  return engine::kExitDone;
}

}  // namespace mayfly::bench
