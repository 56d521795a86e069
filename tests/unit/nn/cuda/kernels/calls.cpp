#include "tests/unit/nn/cuda/kernels/calls.hpp"

#include <cmath>
#include <optional>

#include "base/random.hpp"
#include "datasets/core/augmentation.hpp"

namespace mayfly::nn::cuda::test {
namespace {

void expect_started(int code) {
  EXPECT_EQ(code, 0);
}

std::optional<Tensor> optional_tensor(Machine& machine, Dtype dtype,
                                      const std::vector<float>& values) {
  return values.empty() ? std::nullopt
                        : std::optional<Tensor>(std::in_place, machine, dtype, values);
}
std::optional<Array<float>> optional_array(Machine& machine, const std::vector<float>& values) {
  return values.empty() ? std::nullopt
                        : std::optional<Array<float>>(std::in_place, machine, values);
}
template <typename Held>
auto data_of(const std::optional<Held>& held) {
  return held ? held->data() : nullptr;
}

/// The memory of one norm, and its input.
struct NormMemory {
  NormMemory(Machine& on, const NormInput& input)
      : machine(on),
        shape(input.shape),
        dtype(input.dtype),
        x(on, input.dtype, input.x),
        scale(on, input.scale),
        shift(on, input.shift),
        sums(on, norm_sum_bytes(shape)),
        factor_memory(on, norm_factor_bytes(shape.channels)),
        factors(norm_factors_at(factor_memory.data(), shape.channels)),
        mean(on, shape.channels),
        variance(on, shape.channels) {}

  [[nodiscard]] double* sum_data() const { return static_cast<double*>(sums.data()); }
  [[nodiscard]] std::vector<float> factor(const float* at) const {
    std::vector<float> out(shape.channels);
    machine.read(out.data(), at, out.size() * sizeof(float));
    return out;
  }
  void measure() {
    const Kernels& k = machine.kernels();
    expect_started(k.norm_sums(shape, dtype, x.data(), sum_data(), machine.stream()));
    expect_started(k.norm_measure(shape, sum_data(), scale.data(), shift.data(), factors,
                                  mean.data(), variance.data(), machine.stream()));
  }

  Machine& machine;
  ActivationShape shape;
  Dtype dtype;
  Tensor x;
  Array<float> scale, shift;
  Region sums, factor_memory;
  NormFactors factors;
  Array<float> mean, variance;
};

NormForward apply(NormMemory& memory, const NormInput& input) {
  Machine& machine = memory.machine;
  const auto residual = optional_tensor(machine, input.dtype, input.residual);
  const auto residual_scale = optional_array(machine, input.residual_scale);
  const auto residual_shift = optional_array(machine, input.residual_shift);
  const Tensor out(machine, input.dtype, input.x.size());
  const Array<std::uint8_t> mask(machine, mask_bytes(input.shape));
  NormApply arguments;
  arguments.x = memory.x.data();
  arguments.scale = memory.factors.scale;
  arguments.shift = memory.factors.shift;
  arguments.residual = data_of(residual);
  arguments.residual_scale = data_of(residual_scale);
  arguments.residual_shift = data_of(residual_shift);
  arguments.out = input.in_place ? memory.x.data() : out.data();
  arguments.mask = mask.data();
  expect_started(
      machine.kernels().norm_apply(input.shape, input.dtype, arguments, machine.stream()));
  return {memory.mean.values(),
          memory.variance.values(),
          memory.factor(memory.factors.scale),
          memory.factor(memory.factors.shift),
          input.in_place ? memory.x.values() : out.values(),
          mask.values()};
}

}  // namespace

std::vector<float> random_values(std::size_t count, std::uint64_t seed) {
  const CounterRandom random = CounterRandom(seed).split("values");
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(2 * random.unit(i) - 1);
  }
  return out;
}

NormInput random_norm_input(const ActivationShape& shape, Dtype dtype, std::uint64_t seed) {
  NormInput input;
  input.shape = shape;
  input.dtype = dtype;
  input.x = random_values(shape.elements(), seed);
  input.residual = random_values(shape.elements(), seed + 1);
  input.gradient = random_values(shape.elements(), seed + 2);
  input.addend = random_values(shape.elements(), seed + 3);
  input.scale = random_values(shape.channels, seed + 4);
  input.shift = random_values(shape.channels, seed + 5);
  for (std::size_t i = 0; i < input.x.size(); ++i) {
    const std::size_t c = i % shape.channels;
    // Channels get different magnitudes and means.
    input.x[i] = std::ldexp(input.x[i], static_cast<int>(c % 7) - 3) + static_cast<float>(c % 5);
  }
  return input;
}

NormForward norm_forward(Machine& machine, const NormInput& input) {
  NormMemory memory(machine, input);
  memory.measure();
  return apply(memory, input);
}

NormForward norm_inference(Machine& machine, const NormInput& input, const std::vector<float>& mean,
                           const std::vector<float>& variance) {
  NormMemory memory(machine, input);
  machine.write(memory.mean.data(), mean.data(), mean.size() * sizeof(float));
  machine.write(memory.variance.data(), variance.data(), variance.size() * sizeof(float));
  expect_started(machine.kernels().norm_use_running(
      input.shape.channels, memory.scale.data(), memory.shift.data(), memory.mean.data(),
      memory.variance.data(), memory.factors, machine.stream()));
  return apply(memory, input);
}

NormBackward norm_backward(Machine& machine, const NormInput& input,
                           const std::vector<std::uint8_t>& mask, MaskedAt masked_at) {
  NormMemory memory(machine, input);
  memory.measure();
  const Kernels& k = machine.kernels();
  const Tensor gradient(machine, input.dtype, input.gradient);
  const auto addend = optional_tensor(machine, input.dtype, input.addend);
  const Array<std::uint8_t> mask_array(machine, mask);
  const Tensor other(machine, input.dtype, input.x.size());
  const Tensor x_gradient(machine, input.dtype, input.x.size());
  const Tensor& masked = input.in_place ? gradient : other;
  const Array<float> scale_gradient(machine, input.shape.channels);
  const Array<float> shift_gradient(machine, input.shape.channels);
  const Array<LossInput> loss_input(machine, {training_input(0, 1, input.scale_of_gradients)});
  const bool at_sums = masked_at == MaskedAt::kSums;
  NormGradientSums sums;
  sums.gradient = gradient.data();
  sums.addend = data_of(addend);
  sums.mask = mask_array.data();
  sums.x = memory.x.data();
  sums.mean = memory.factors.mean;
  sums.masked = at_sums ? masked.data() : nullptr;
  expect_started(
      k.norm_gradient_sums(input.shape, input.dtype, sums, memory.sum_data(), machine.stream()));
  expect_started(k.norm_derive(input.shape, memory.sum_data(), loss_input.data(), memory.factors,
                               scale_gradient.data(), shift_gradient.data(), machine.stream()));
  NormGradientApply apply;
  apply.gradient = at_sums ? masked.data() : gradient.data();
  apply.mask = at_sums ? nullptr : mask_array.data();
  apply.x = memory.x.data();
  apply.x_gradient = x_gradient.data();
  apply.masked = at_sums ? nullptr : masked.data();
  expect_started(
      k.norm_gradient_apply(input.shape, input.dtype, apply, memory.factors, machine.stream()));
  return {scale_gradient.values(), shift_gradient.values(), x_gradient.values(), masked.values()};
}

Plain add(Machine& machine, Dtype dtype, const std::vector<float>& a, const std::vector<float>& b,
          bool in_place) {
  const Tensor left(machine, dtype, a);
  const Tensor right(machine, dtype, b);
  const Tensor other(machine, dtype, a.size());
  const Tensor& out = in_place ? right : other;
  expect_started(machine.kernels().add(a.size(), dtype, left.data(), right.data(), out.data(),
                                       machine.stream()));
  return {out.values(), {}};
}

Plain shortcut(Machine& machine, const ActivationShape& from, Dtype dtype,
               const std::vector<float>& x) {
  const std::size_t width = (from.width + 1) / 2;
  const Tensor input(machine, dtype, x);
  const Tensor out(machine, dtype, from.images * width * width * 2 * from.channels);
  expect_started(
      machine.kernels().shortcut(from, dtype, input.data(), out.data(), machine.stream()));
  return {out.values(), {}};
}

Plain shortcut_gradient(Machine& machine, const ActivationShape& from, Dtype dtype,
                        const std::vector<float>& out_gradient) {
  const Tensor input(machine, dtype, out_gradient);
  const Tensor out(machine, dtype, from.elements());
  expect_started(
      machine.kernels().shortcut_gradient(from, dtype, input.data(), out.data(), machine.stream()));
  return {out.values(), {}};
}

Plain max_pool(Machine& machine, const ActivationShape& from, Dtype dtype,
               const std::vector<float>& x, const std::vector<float>& scale,
               const std::vector<float>& shift) {
  const std::size_t width = (from.width + 1) / 2;
  const std::size_t count = from.images * width * width * from.channels;
  const Tensor input(machine, dtype, x);
  const auto factor = optional_array(machine, scale);
  const auto constant = optional_array(machine, shift);
  const Tensor out(machine, dtype, count);
  const Array<std::uint8_t> places(machine, count);
  expect_started(machine.kernels().max_pool(from, dtype, input.data(), data_of(factor),
                                            data_of(constant), out.data(), places.data(),
                                            machine.stream()));
  return {out.values(), places.values()};
}

Plain max_pool_gradient(Machine& machine, const ActivationShape& from, Dtype dtype,
                        const std::vector<float>& out_gradient,
                        const std::vector<std::uint8_t>& places) {
  const Tensor input(machine, dtype, out_gradient);
  const Array<std::uint8_t> chosen(machine, places);
  const Tensor out(machine, dtype, from.elements());
  expect_started(machine.kernels().max_pool_gradient(from, dtype, input.data(), chosen.data(),
                                                     out.data(), machine.stream()));
  return {out.values(), {}};
}

ClassifierInput random_classifier_input(const ClassifierShape& shape, Dtype dtype,
                                        std::uint64_t seed) {
  ClassifierInput input;
  input.shape = shape;
  input.dtype = dtype;
  input.x = random_values(shape.activations().elements(), seed);
  input.weight = random_values(std::size_t{shape.classes} * shape.features, seed + 1);
  input.bias = random_values(shape.classes, seed + 2);
  const CounterRandom random = CounterRandom(seed).split("labels");
  for (std::uint32_t i = 0; i < shape.images; ++i) {
    input.labels.push_back(static_cast<std::uint16_t>(random.below(i, shape.classes)));
  }
  input.loss = {0.1F, shape.images};
  return input;
}

ClassifierResult classify(Machine& machine, const ClassifierInput& input) {
  const ClassifierShape& shape = input.shape;
  const Kernels& k = machine.kernels();
  const Tensor x(machine, input.dtype, input.x);
  const Array<float> weight(machine, input.weight);
  const Array<float> bias(machine, input.bias);
  const Array<std::uint16_t> labels(machine, input.labels);
  const Array<LossInput> loss_input(machine, std::vector<LossInput>{input.loss});
  const Array<LossOutput> loss_output(machine, 1);
  const Region memory(machine, classifier_bytes(shape));
  const ClassifierMemory parts = classifier_memory_at(memory.data(), shape);
  const Array<float> weight_gradient(machine, input.weight.size());
  const Array<float> bias_gradient(machine, input.bias.size());
  const Tensor x_gradient(machine, input.dtype, input.x.size());
  expect_started(k.classifier_forward(shape, input.dtype, x.data(), weight.data(), bias.data(),
                                      parts, machine.stream()));
  expect_started(k.classifier_loss(shape, labels.data(), loss_input.data(), parts,
                                   loss_output.data(), machine.stream()));
  expect_started(k.classifier_backward(shape, input.dtype, weight.data(), loss_input.data(), parts,
                                       weight_gradient.data(), bias_gradient.data(),
                                       x_gradient.data(), machine.stream()));
  ClassifierResult result;
  result.logits.resize(std::size_t{shape.images} * shape.classes);
  machine.read(result.logits.data(), parts.logits, result.logits.size() * sizeof(double));
  const LossOutput loss = loss_output.values().front();
  result.loss_sum = {loss.loss_sum};
  result.correct = {loss.correct};
  result.weight_gradient = weight_gradient.values();
  result.bias_gradient = bias_gradient.values();
  result.x_gradient = x_gradient.values();
  return result;
}

FilterResult move_filters(Machine& machine, std::vector<Filter> filters, Dtype dtype,
                          const std::vector<float>& flat, const std::vector<float>& packed_gradient,
                          std::size_t first, std::size_t last, float scale) {
  const std::uint32_t end = number_filter_blocks(filters);
  const Array<Filter> table(machine, filters);
  FilterRange range;
  range.table = table.data();
  range.count = static_cast<std::uint32_t>(filters.size());
  range.first_block = filters[first].first_block;
  range.last_block = last < filters.size() ? filters[last].first_block : end;
  const Array<float> from(machine, flat);
  // Elements that no filter covers must keep this value.
  const Tensor packed(machine, dtype, std::vector<float>(packed_gradient.size(), 7));
  const Tensor gradient(machine, dtype, packed_gradient);
  const Array<float> flat_gradient(machine, std::vector<float>(flat.size(), 7));
  const Array<LossInput> loss_input(machine, {training_input(0, 1, scale)});
  expect_started(
      machine.kernels().pack_filters(range, dtype, from.data(), packed.data(), machine.stream()));
  expect_started(machine.kernels().unpack_filter_gradients(
      range, dtype, loss_input.data(), gradient.data(), flat_gradient.data(), machine.stream()));
  return {packed.values(), flat_gradient.values()};
}

SgdResult update(Machine& machine, const SgdOptions& options, float rate,
                 const std::vector<float>& gradient, const std::vector<float>& parameters,
                 const std::vector<float>& momentum) {
  const Array<float> g(machine, gradient);
  const Array<float> w(machine, parameters);
  const Array<float> v(machine, momentum);
  expect_started(machine.kernels().sgd_update(options, rate, g.data(), w.data(), v.data(),
                                              gradient.size(), machine.stream()));
  return {w.values(), v.values()};
}

Plain store_images(Machine& machine, std::uint32_t images, std::uint32_t width, Dtype dtype,
                   const std::vector<float>& from) {
  const Array<float> input(machine, from);
  const Tensor out(machine, dtype, std::size_t{images} * width * width * kImageChannels);
  expect_started(machine.kernels().store_images(images, width, dtype, input.data(), out.data(),
                                                machine.stream()));
  return {out.values(), {}};
}

Plain gather_images(Machine& machine, const GatherInput& input, Dtype dtype) {
  const Array<std::uint8_t> pixels(machine, input.pixels);
  const Array<float> table(machine, input.table);
  const Array<SampleDraw> samples(machine, input.samples);
  const Tensor out(machine, dtype,
                   input.samples.size() * input.width * input.width * kImageChannels);
  expect_started(machine.kernels().gather_images(
      {pixels.data(), table.data(), input.width}, datasets::augmentation_source(input.seed),
      input.augment, samples.data(), static_cast<std::uint32_t>(input.samples.size()), dtype,
      out.data(), machine.stream()));
  return {out.values(), {}};
}

}  // namespace mayfly::nn::cuda::test
