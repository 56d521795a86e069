#pragma once

// Private to nn/cuda: what a fused pass (ConvPass) has of a norm, around one convolution that is
// tried by itself: its inputs, and our kernels that follow the pass, or that follow the plain
// convolution in its place. Both end with the same numbers per channel, so that they can be
// compared and timed. It allocates nothing and knows nothing of where it runs.

#include <cstddef>
#include <vector>

#include "base/result.hpp"
#include "nn/cuda/engine_table.hpp"
#include "nn/cuda/kernels/kernels.hpp"

namespace mayfly::nn::cuda {

class TrialNorm {
 public:
  /// Something that is to be filled before prepare(). A ReLU's input that is almost 0 may be above
  /// it for one engine and below for another, so what is normalised keeps away from 0, and a shift
  /// is none, or moves a channel to one side.
  struct Input {
    void* at = nullptr;
    std::size_t elements = 0;
    Dtype dtype = Dtype::kFp32;
    bool is_shift = false;

    /// From a random number of [-1, 1), for element `i`.
    [[nodiscard]] float value(float random, std::size_t i) const;
  };

  /// `key` is of a fused pass. `memory` has bytes_for(key), 256-byte aligned; it and the kernels
  /// must outlive the norm.
  TrialNorm(const ConvKey& key, const Kernels& kernels, void* memory);
  [[nodiscard]] static std::size_t bytes_for(const ConvKey& key);

  [[nodiscard]] std::vector<Input> inputs() const;
  /// To be set to training_input(0, 1, 1).
  [[nodiscard]] LossInput* loss_input() const { return at_.loss_input; }
  /// A forward pass of the norm, if the convolution's x is behind it. This and what follows gives
  /// work to `stream`; kUnsupported if a kernel cannot be started.
  [[nodiscard]] Result<void> prepare(Stream stream) const;

  /// The convolution's tensors with those of the fused pass.
  [[nodiscard]] ConvTensors with(ConvTensors tensors) const;

  /// What follows the plain convolution, whose result is `out`. As a step has it, which leaves a
  /// gradient to be masked later; `masks`: it is masked here, as the fused pass does it.
  [[nodiscard]] Result<void> after_plain(void* out, bool masks, Stream stream) const;
  /// What follows the fused pass.
  [[nodiscard]] Result<void> after_fused(Stream stream) const;

  /// What a fused pass writes besides its activation or gradient; to be spoiled before it runs.
  [[nodiscard]] float* totals() const { return at_.totals; }
  [[nodiscard]] std::size_t totals_bytes() const { return norm_total_bytes(shape_.channels); }

  /// Two numbers per channel that came out: mean and variance, or the gradients of the norm's
  /// parameters.
  [[nodiscard]] const float* per_channel() const { return at_.per_channel; }
  [[nodiscard]] std::size_t per_channel_count() const { return 2 * std::size_t{shape_.channels}; }

 private:
  struct Places {
    float* totals = nullptr;
    double* sums = nullptr;
    void* factors = nullptr;
    float* parameters = nullptr;  ///< scale, then shift
    float* per_channel = nullptr;
    LossInput* loss_input = nullptr;
    void* x = nullptr;  ///< what the norm before the convolution has normalised
    void* applied = nullptr;
    std::uint8_t* mask = nullptr;
  };
  static std::size_t divide(const ConvKey& key, void* memory, Places& places);
  [[nodiscard]] bool is_before() const { return key_.pass == ConvPass::kInputGradientSums; }
  [[nodiscard]] NormFactors factors() const {
    return norm_factors_at(at_.factors, shape_.channels);
  }

  ConvKey key_;
  ActivationShape shape_;  ///< of the norm
  const Kernels& kernels_;
  Places at_;
};

}  // namespace mayfly::nn::cuda
