#pragma once

// Calls of each kernel on a machine, with inputs and outputs in ordinary vectors. The unit tests
// compare the results of the CPU with references; tests/gpu compares those of the GPU with the
// CPU's.

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "tests/unit/nn/cuda/kernels/machine.hpp"

namespace mayfly::nn::cuda::test {

/// Numbers between -1 and 1, a function of the two arguments.
[[nodiscard]] std::vector<float> random_values(std::size_t count, std::uint64_t seed);

struct NormInput {
  ActivationShape shape;
  Dtype dtype = Dtype::kFp32;
  std::vector<float> x, scale, shift;
  std::vector<float> residual;                        ///< may be empty
  std::vector<float> residual_scale, residual_shift;  ///< may be empty
  bool in_place = false;                              ///< out is x; masked gradient is gradient
  std::vector<float> gradient, addend;                ///< the latter may be empty
  float scale_of_gradients = 1;                       ///< the factor in both of these
};
[[nodiscard]] NormInput random_norm_input(const ActivationShape& shape, Dtype dtype,
                                          std::uint64_t seed);

struct NormForward {
  std::vector<float> mean, variance, scale, shift, out;
  std::vector<std::uint8_t> mask;
  [[nodiscard]] auto all() const { return std::tie(mean, variance, scale, shift, out, mask); }
};
[[nodiscard]] NormForward norm_forward(Machine& machine, const NormInput& input);
/// The same with running statistics in place of the batch's.
[[nodiscard]] NormForward norm_inference(Machine& machine, const NormInput& input,
                                         const std::vector<float>& mean,
                                         const std::vector<float>& variance);

struct NormBackward {
  std::vector<float> scale_gradient, shift_gradient, x_gradient, masked;
  [[nodiscard]] auto all() const {
    return std::tie(scale_gradient, shift_gradient, x_gradient, masked);
  }
};
/// The kernel that stores the masked gradient: that of the sums, or that of the second pass.
enum class MaskedAt { kSums, kApply };
/// `mask`: that of a forward pass over the same input.
[[nodiscard]] NormBackward norm_backward(Machine& machine, const NormInput& input,
                                         const std::vector<std::uint8_t>& mask, MaskedAt masked_at);

struct Plain {
  std::vector<float> out;
  std::vector<std::uint8_t> bytes;
  [[nodiscard]] auto all() const { return std::tie(out, bytes); }
};
[[nodiscard]] Plain add(Machine& machine, Dtype dtype, const std::vector<float>& a,
                        const std::vector<float>& b, bool in_place);
[[nodiscard]] Plain shortcut(Machine& machine, const ActivationShape& from, Dtype dtype,
                             const std::vector<float>& x);
[[nodiscard]] Plain shortcut_gradient(Machine& machine, const ActivationShape& from, Dtype dtype,
                                      const std::vector<float>& out_gradient);
/// `scale` and `shift` may be empty; bytes are the places.
[[nodiscard]] Plain max_pool(Machine& machine, const ActivationShape& from, Dtype dtype,
                             const std::vector<float>& x, const std::vector<float>& scale,
                             const std::vector<float>& shift);
[[nodiscard]] Plain max_pool_gradient(Machine& machine, const ActivationShape& from, Dtype dtype,
                                      const std::vector<float>& out_gradient,
                                      const std::vector<std::uint8_t>& places);

struct ClassifierInput {
  ClassifierShape shape;
  Dtype dtype = Dtype::kFp32;
  std::vector<float> x, weight, bias;
  std::vector<std::uint16_t> labels;
  LossInput loss;
};
[[nodiscard]] ClassifierInput random_classifier_input(const ClassifierShape& shape, Dtype dtype,
                                                      std::uint64_t seed);
struct ClassifierResult {
  std::vector<double> logits, loss_sum;
  std::vector<std::uint32_t> correct;
  std::vector<float> weight_gradient, bias_gradient, x_gradient;
  [[nodiscard]] auto all() const {
    return std::tie(logits, loss_sum, correct, weight_gradient, bias_gradient, x_gradient);
  }
};
[[nodiscard]] ClassifierResult classify(Machine& machine, const ClassifierInput& input);

/// The packed filters (as float), and the result of unpacking `packed_gradient`. Elements of the
/// flat array that no filter covers keep their value. `scale`: the factor in the packed gradient.
struct FilterResult {
  std::vector<float> packed, flat_gradient;
  [[nodiscard]] auto all() const { return std::tie(packed, flat_gradient); }
};
[[nodiscard]] FilterResult move_filters(Machine& machine, std::vector<Filter> filters, Dtype dtype,
                                        const std::vector<float>& flat,
                                        const std::vector<float>& packed_gradient,
                                        std::size_t first, std::size_t last, float scale = 1);

struct SgdResult {
  std::vector<float> parameters, momentum;
  [[nodiscard]] auto all() const { return std::tie(parameters, momentum); }
};
[[nodiscard]] SgdResult update(Machine& machine, const SgdOptions& options, float rate,
                               const std::vector<float>& gradient,
                               const std::vector<float>& parameters,
                               const std::vector<float>& momentum);

[[nodiscard]] Plain store_images(Machine& machine, std::uint32_t images, std::uint32_t width,
                                 Dtype dtype, const std::vector<float>& from);

struct GatherInput {
  std::uint32_t width = 32;
  std::vector<std::uint8_t> pixels;
  std::vector<float> table;
  std::vector<SampleDraw> samples;
  std::uint64_t seed = 0;
  bool augment = true;
};
[[nodiscard]] Plain gather_images(Machine& machine, const GatherInput& input, Dtype dtype);

}  // namespace mayfly::nn::cuda::test
