#include "nn/cuda/step_executor.hpp"

#include <fmt/format.h>

#include "base/check.hpp"

namespace mayfly::nn::cuda {
namespace {

Result<void> started(int status, const char* kernel) {
  if (status == 0) {
    return {};
  }
  return Error{Errc::kUnsupported,
               fmt::format("kernel {} could not be started: CUDA error {}", kernel, status)};
}

}  // namespace

void* StepExecutor::at(TensorId id) const {
  if (id == kNoTensor) {
    return nullptr;
  }
  const auto index = static_cast<std::size_t>(id);
  ENSURE(index < plan_.memory.tensors().size(), "the tensor was planned");
  return memory_ + plan_.memory.tensors()[index].offset;
}

ConvTensors StepExecutor::tensors_of(const Convolve& convolve) const {
  const TensorId filters = convolve.pass == ConvPass::kWeightGradient
                               ? plan_.resident.filter_gradients
                               : plan_.resident.filters;
  const std::size_t offset = plan_.filters[convolve.layer].packed_offset * bytes_of(plan_.dtype);
  return {.x = at(convolve.x),
          .filter = static_cast<std::byte*>(at(filters)) + offset,
          .y = at(convolve.y),
          .workspace = at(convolve.workspace)};
}

/// One operation at a time; in the order in which they are declared.
struct StepExecutor::Step {
  const StepExecutor& self;
  Stream stream;
  std::size_t index = 0;

  [[nodiscard]] const StepPlan& plan() const { return self.plan_; }
  [[nodiscard]] const Kernels& kernels() const { return self.kernels_; }
  [[nodiscard]] const Layer& layer(std::size_t i) const { return self.plan_.layers[i]; }
  [[nodiscard]] void* at(TensorId id) const { return self.at(id); }
  [[nodiscard]] std::uint8_t* bytes(TensorId id) const {
    return static_cast<std::uint8_t*>(self.at(id));
  }
  [[nodiscard]] double* doubles(TensorId id) const { return static_cast<double*>(self.at(id)); }
  [[nodiscard]] float* parameter(std::size_t offset) const {
    return self.floats(plan().resident.parameters) + offset;
  }
  [[nodiscard]] float* gradient(std::size_t offset) const {
    return self.floats(plan().resident.gradient) + offset;
  }
  [[nodiscard]] NormFactors factors(std::size_t i, TensorId id) const {
    return norm_factors_at(at(id), layer(i).out.channels);
  }
  [[nodiscard]] ClassifierMemory classifier(TensorId id) const {
    return classifier_memory_at(at(id), plan().classifier);
  }
  [[nodiscard]] const LossInput* loss_input() const {
    return static_cast<const LossInput*>(at(plan().resident.loss_input));
  }
  [[nodiscard]] FilterRange filters(std::size_t first, std::size_t end) const {
    const auto block = [this](std::size_t i) {
      return i == plan().filters.size() ? plan().filter_blocks : plan().filters[i].first_block;
    };
    return {.table = static_cast<const Filter*>(at(plan().resident.filter_table)),
            .count = static_cast<std::uint32_t>(plan().filters.size()),
            .first_block = block(first),
            .last_block = block(end)};
  }

  Result<void> operator()(const PackFilters& /*all*/) const {
    return started(kernels().pack_filters(filters(0, plan().filters.size()), plan().dtype,
                                          parameter(0), at(plan().resident.filters), stream),
                   "pack_filters");
  }

  Result<void> operator()(const StoreImages& op) const {
    const ConvShape& stem = layer(0).conv;
    return started(kernels().store_images(static_cast<std::uint32_t>(stem.images),
                                          static_cast<std::uint32_t>(stem.input_size), plan().dtype,
                                          self.floats(op.from), at(op.to), stream),
                   "store_images");
  }

  Result<void> operator()(const GatherImages& op) const {
    ENSURE(plan().set.has_value(), "a plan that looks up images has a set");
    const ConvShape& stem = layer(0).conv;
    const ResidentImages images{.pixels = bytes(op.pixels),
                                .table = self.floats(op.table),
                                .width = static_cast<std::uint32_t>(stem.input_size)};
    return started(kernels().gather_images(images, plan().set->augmentation, plan().set->augment,
                                           static_cast<const SampleDraw*>(at(op.draws)),
                                           static_cast<std::uint32_t>(stem.images), plan().dtype,
                                           at(op.to), stream),
                   "gather_images");
  }

  Result<void> operator()(const Convolve& op) const {
    return self.convolver_.convolve(index, op, self.tensors_of(op), stream);
  }

  Result<void> operator()(const MeasureNorm& op) const {
    const Layer& norm = layer(op.layer);
    double* sums = doubles(op.sums);
    float* statistics = self.floats(plan().resident.batch_statistics);
    TRY(started(kernels().norm_sums(norm.out, plan().dtype, at(op.x), sums, stream), "norm_sums"));
    return started(
        kernels().norm_measure(norm.out, sums, parameter(norm.scale), parameter(norm.shift),
                               factors(op.layer, op.factors), statistics + norm.mean,
                               statistics + norm.variance, stream),
        "norm_measure");
  }

  Result<void> operator()(const UseRunningNorm& op) const {
    const Layer& norm = layer(op.layer);
    const float* statistics = self.floats(plan().resident.running_statistics);
    return started(
        kernels().norm_use_running(norm.out.channels, parameter(norm.scale), parameter(norm.shift),
                                   statistics + norm.mean, statistics + norm.variance,
                                   factors(op.layer, op.factors), stream),
        "norm_use_running");
  }

  Result<void> operator()(const ApplyNorm& op) const {
    const NormFactors own = factors(op.layer, op.factors);
    NormApply apply{.x = at(op.x),
                    .scale = own.scale,
                    .shift = own.shift,
                    .residual = at(op.residual),
                    .out = at(op.out),
                    .mask = bytes(op.mask)};
    if (op.residual_factors != kNoTensor) {
      const NormFactors other = factors(op.layer, op.residual_factors);
      apply.residual_scale = other.scale;
      apply.residual_shift = other.shift;
    }
    return started(kernels().norm_apply(layer(op.layer).out, plan().dtype, apply, stream),
                   "norm_apply");
  }

  Result<void> operator()(const Downsample& op) const {
    return started(kernels().shortcut(op.from, plan().dtype, at(op.x), at(op.out), stream),
                   "shortcut");
  }

  Result<void> operator()(const DownsampleGradient& op) const {
    return started(kernels().shortcut_gradient(op.from, plan().dtype, at(op.out_gradient),
                                               at(op.x_gradient), stream),
                   "shortcut_gradient");
  }

  Result<void> operator()(const MaxPool& op) const {
    const NormFactors norm = factors(0, op.factors);  // pooling is behind the stem
    return started(kernels().max_pool(op.from, plan().dtype, at(op.x), norm.scale, norm.shift,
                                      at(op.out), bytes(op.places), stream),
                   "max_pool");
  }

  Result<void> operator()(const MaxPoolGradient& op) const {
    return started(kernels().max_pool_gradient(op.from, plan().dtype, at(op.out_gradient),
                                               bytes(op.places), at(op.x_gradient), stream),
                   "max_pool_gradient");
  }

  Result<void> operator()(const Classify& op) const {
    const ClassifierMemory memory = classifier(op.memory);
    TRY(started(kernels().classifier_forward(plan().classifier, plan().dtype, at(op.x),
                                             parameter(plan().classifier_weight),
                                             parameter(plan().classifier_bias), memory, stream),
                "classifier_forward"));
    return started(
        kernels().classifier_loss(
            plan().classifier, static_cast<const std::uint16_t*>(at(op.labels)), loss_input(),
            memory, static_cast<LossOutput*>(at(plan().resident.loss_output)), stream),
        "classifier_loss");
  }

  Result<void> operator()(const ClassifyGradient& op) const {
    return started(kernels().classifier_backward(
                       plan().classifier, plan().dtype, parameter(plan().classifier_weight),
                       loss_input(), classifier(op.memory), gradient(plan().classifier_weight),
                       gradient(plan().classifier_bias), at(op.x_gradient), stream),
                   "classifier_backward");
  }

  Result<void> operator()(const SumNormGradient& op) const {
    const Layer& norm = layer(op.layer);
    const NormFactors own = factors(op.layer, op.factors);
    double* sums = doubles(op.sums);
    const NormGradientSums arguments{.gradient = at(op.gradient),
                                     .addend = at(op.addend),
                                     .mask = bytes(op.mask),
                                     .x = at(op.x),
                                     .mean = own.mean,
                                     .masked = at(op.masked)};
    TRY(started(kernels().norm_gradient_sums(norm.out, plan().dtype, arguments, sums, stream),
                "norm_gradient_sums"));
    return started(kernels().norm_derive(norm.out, sums, loss_input(), own, gradient(norm.scale),
                                         gradient(norm.shift), stream),
                   "norm_derive");
  }

  Result<void> operator()(const ApplyNormGradient& op) const {
    const NormGradientApply arguments{
        .gradient = at(op.gradient), .mask = bytes(op.mask), .x = at(op.x), .x_gradient = at(op.x)};
    return started(kernels().norm_gradient_apply(layer(op.layer).out, plan().dtype, arguments,
                                                 factors(op.layer, op.factors), stream),
                   "norm_gradient_apply");
  }

  Result<void> operator()(const AddGradient& op) const {
    return started(kernels().add(op.elements, plan().dtype, at(op.a), at(op.b), at(op.a), stream),
                   "add");
  }

  Result<void> operator()(const UnpackFilterGradients& op) const {
    return started(kernels().unpack_filter_gradients(
                       filters(op.first_layer, op.end_layer), plan().dtype, loss_input(),
                       at(plan().resident.filter_gradients), gradient(0), stream),
                   "unpack_filter_gradients");
  }
};

Result<void> StepExecutor::run(const OperationRange& range, Stream stream) {
  Step step{*this, stream};
  for (step.index = range.first; step.index < range.end; ++step.index) {
    TRY(std::visit(step, plan_.operations[step.index]));
  }
  return {};
}

}  // namespace mayfly::nn::cuda
