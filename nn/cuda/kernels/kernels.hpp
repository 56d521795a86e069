#pragma once

// Mayfly's own CUDA kernels of a training step: everything but the convolutions. They are a table
// of functions, as in nn/cpu: device_kernels() submits work to a GPU, host_kernels() runs the same
// bodies on the CPU, with loops over blocks and threads. So the kernels can be tested, and whole
// networks computed with them, without a GPU. This header needs no CUDA.
//
// Rules for all of them, unless stated otherwise:
// - A function submits work to `stream` (a cudaStream_t; the host ignores it), does not wait for
//   it, allocates nothing and may be captured in a CUDA graph. It returns 0 or a cudaError_t; for
//   impossible shapes it returns kInvalidArguments and starts nothing. The calling thread must be
//   bound to the device; any thread.
// - All pointers are to memory of the device, given by the caller. Activations, images, scratch and
//   whole flat arrays are aligned to 16 bytes, tensors in a flat array only as their elements.
//   Outputs are overwritten completely; inputs and outputs are different memory unless stated.
// - Activations and their gradients are NHWC, of a Dtype (the same everywhere within one call);
//   channels are a multiple of 8. Parameters, their gradients and statistics are fp32.
// - The result is a function of the arguments and shapes alone: every sum has one order, which
//   depends on nothing else, and no float is added by an atomic operation. Only operations that are
//   marked as fused in the formulas are fused, so device and host compute the same bits, except for
//   NaN payloads.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/random.hpp"
#include "nn/dtype.hpp"
#include "nn/optimizer.hpp"
#include "nn/step_engine.hpp"

namespace mayfly::nn::cuda {

using Stream = void*;

inline constexpr int kInvalidArguments = 1;  ///< cudaErrorInvalidValue

/// Square images with their channels innermost.
struct ActivationShape {
  std::uint32_t images = 0;
  std::uint32_t width = 0;  ///< = height
  std::uint32_t channels = 0;

  [[nodiscard]] constexpr std::uint64_t rows() const {
    return std::uint64_t{images} * width * width;
  }
  [[nodiscard]] constexpr std::uint64_t elements() const { return rows() * channels; }
};

/// Where a ReLU was active: one bit per element, that of element i being bit i % 8 of byte i / 8.
[[nodiscard]] constexpr std::size_t mask_bytes(const ActivationShape& shape) {
  return static_cast<std::size_t>(shape.elements() / 8);
}

/// Channels of the network's input as it is stored: 3 and one of zeros.
inline constexpr std::uint32_t kImageChannels = 4;

/// The factors of a batch norm by channel; arrays of `channels` elements in one piece of memory.
struct NormFactors {
  double* inverse_deviation = nullptr;
  float* mean = nullptr;
  float* scale = nullptr;  ///< the whole norm is x * scale + shift
  float* shift = nullptr;
  float* centred_factor = nullptr;  ///< of the gradient: scale * g + (centred_factor * (x - mean)
  float* constant = nullptr;        ///< + constant)
};

/// Bytes of memory that norm_factors_at() divides.
[[nodiscard]] constexpr std::size_t norm_factor_bytes(std::uint32_t channels) {
  return std::size_t{channels} * (sizeof(double) + 5 * sizeof(float));
}
[[nodiscard]] NormFactors norm_factors_at(void* memory, std::uint32_t channels);

/// Bytes of scratch that the sums of a norm need between norm_sums() and norm_measure(), and
/// between norm_gradient_sums() and norm_derive().
[[nodiscard]] std::size_t norm_sum_bytes(const ActivationShape& shape);

/// y = x * scale + shift (fused), + the residual, then ReLU.
struct NormApply {
  const void* x = nullptr;
  const float* scale = nullptr;
  const float* shift = nullptr;
  const void* residual = nullptr;  ///< null: none
  const float* residual_scale =
      nullptr;  ///< null: the residual as it is; else its own norm (fused)
  const float* residual_shift = nullptr;
  bool relu = true;
  void* out = nullptr;           ///< may be x or residual
  std::uint8_t* mask = nullptr;  ///< mask_bytes(); null: not wanted
};

/// g = mask (gradient + addend), and its sums for the norm whose input is x.
struct NormGradientSums {
  const void* gradient = nullptr;
  const void* addend = nullptr;        ///< null: none
  const std::uint8_t* mask = nullptr;  ///< null: nothing is masked
  const void* x = nullptr;
  const float* mean = nullptr;
  void* masked = nullptr;  ///< g goes here, if not null; may be gradient or addend
};

/// x_gradient = scale * g + (centred_factor * (x - mean) + constant), g as above, both products
/// fused.
struct NormGradientApply {
  const void* gradient = nullptr;
  const std::uint8_t* mask = nullptr;  ///< null: nothing is masked, as g was stored before
  const void* x = nullptr;
  void* x_gradient = nullptr;  ///< may be gradient or x
  void* masked = nullptr;  ///< g goes here, if not null (a shortcut's gradient); may be gradient
};

/// The part behind the last block: average pooling, linear layer, loss.
struct ClassifierShape {
  std::uint32_t images = 0;
  std::uint32_t width = 0;     ///< of the activations that are averaged
  std::uint32_t features = 0;  ///< = their channels
  std::uint32_t classes = 0;

  [[nodiscard]] constexpr ActivationShape activations() const { return {images, width, features}; }
};

/// Everything between the activations and the loss, in double as on the CPU (nn/cpu/classifier).
struct ClassifierMemory {
  double* features = nullptr;           ///< images x features
  double* logits = nullptr;             ///< images x classes
  double* logit_gradients = nullptr;    ///< images x classes
  double* feature_gradients = nullptr;  ///< images x features
  double* losses = nullptr;             ///< images
  std::uint32_t* hits = nullptr;        ///< images
};

/// Bytes of memory that classifier_memory_at() divides.
[[nodiscard]] std::size_t classifier_bytes(const ClassifierShape& shape);
[[nodiscard]] ClassifierMemory classifier_memory_at(void* memory, const ClassifierShape& shape);

/// The inputs of the loss, in device memory, so that a captured graph can get other values.
struct LossInput {
  float smoothing = 0;      ///< of labels; 0 in evaluation
  std::uint32_t count = 0;  ///< images that count, the first ones
  /// Factor of the gradients of activations, a power of two, which changes no digit; gradients of
  /// parameters are not scaled (nn/dtype.hpp).
  float scale = 1;
  float unscale = 1;  ///< 1 / scale
};

/// The loss input of a training microbatch; `scale` is a power of two.
[[nodiscard]] constexpr LossInput training_input(float smoothing, std::uint32_t images,
                                                 float scale) {
  return {smoothing, images, scale, 1 / scale};
}

/// The results of the loss, in device memory.
struct LossOutput {
  double loss_sum = 0;  ///< over the images that count
  std::uint32_t correct = 0;
  std::uint32_t padding = 0;
};

/// A convolution's weights: OIHW in fp32 in a flat array of parameters, or of their gradients;
/// packed as cuDNN wants them (output channel, row, column, input channel) elsewhere.
struct Filter {
  std::uint64_t offset = 0;         ///< in elements, in the flat array
  std::uint64_t packed_offset = 0;  ///< in elements, where packed; a multiple of 8
  std::uint32_t out_channels = 0;
  std::uint32_t in_channels = 0;
  std::uint32_t packed_channels = 0;  ///< input channels when packed: those beyond have weight zero
  std::uint32_t kernel = 0;           ///< 1 to 7
  std::uint32_t first_block = 0;      ///< number_filter_blocks() sets it
  std::uint32_t padding = 0;
};

/// Distributes filters over thread blocks: sets first_block of each, returns the end.
[[nodiscard]] std::uint32_t number_filter_blocks(std::span<Filter> filters);

/// Filters in device memory, and which of their blocks to work on: those of neighbouring filters.
struct FilterRange {
  const Filter* table = nullptr;
  std::uint32_t count = 0;        ///< of the table
  std::uint32_t first_block = 0;  ///< that of the first filter that is wanted
  std::uint32_t last_block = 0;   ///< one past: that of the filter behind, or the end
};

/// A data set in device memory, with the augmentation for training (datasets/core/augmentation).
struct ResidentImages {
  const std::uint8_t* pixels = nullptr;  ///< samples x 3 x width x width
  const float* table = nullptr;          ///< 3 x 256: the normalised value of each byte
  std::uint32_t width = 0;               ///< at least 4
};

struct Kernels {
  /// Loads all kernels. Otherwise the first launch of a kernel would wait for all running work.
  int (*load)();

  // Input

  /// NCHW fp32 images with 3 channels to NHWC with kImageChannels, the last of them zero.
  int (*store_images)(std::uint32_t images, std::uint32_t width, Dtype dtype, const float* from,
                      void* to, Stream stream);

  /// Looks up `count` samples of a resident set: as Normaliser::apply (the same values, rounded to
  /// dtype) with the draws of `augmentation` (datasets::augmentation_source), or with `augment`
  /// false unchanged. `to` as with store_images.
  int (*gather_images)(const ResidentImages& set, CounterRandom augmentation, bool augment,
                       const SampleDraw* samples, std::uint32_t count, Dtype dtype, void* to,
                       Stream stream);

  // Batch norm, over all rows of a shape. As nn/cpu/block_layers: statistics in double once the
  // sums of a few rows, less a value of the channel, were taken in fp32.

  /// Sums of x, for norm_measure(); `sums` has norm_sum_bytes().
  int (*norm_sums)(const ActivationShape& shape, Dtype dtype, const void* x, double* sums,
                   Stream stream);

  /// The batch's own mean and unbiased variance to `mean` and `variance`; factors for norm_apply().
  /// `scale` and `shift` are the norm's parameters.
  int (*norm_measure)(const ActivationShape& shape, const double* sums, const float* scale,
                      const float* shift, const NormFactors& factors, float* mean, float* variance,
                      Stream stream);

  /// Inference: factors for norm_apply() from running statistics.
  int (*norm_use_running)(std::uint32_t channels, const float* scale, const float* shift,
                          const float* mean, const float* variance, const NormFactors& factors,
                          Stream stream);

  int (*norm_apply)(const ActivationShape& shape, Dtype dtype, const NormApply& apply,
                    Stream stream);

  int (*norm_gradient_sums)(const ActivationShape& shape, Dtype dtype,
                            const NormGradientSums& arguments, double* sums, Stream stream);

  /// Gradients of the norm's parameters, without the scale; factors for norm_gradient_apply().
  int (*norm_derive)(const ActivationShape& shape, const double* sums, const LossInput* input,
                     const NormFactors& factors, float* scale_gradient, float* shift_gradient,
                     Stream stream);

  int (*norm_gradient_apply)(const ActivationShape& shape, Dtype dtype,
                             const NormGradientApply& arguments, const NormFactors& factors,
                             Stream stream);

  // Shortcuts and pooling

  /// out = a + b, element by element; out may be either.
  int (*add)(std::uint64_t elements, Dtype dtype, const void* a, const void* b, void* out,
             Stream stream);

  /// Option A where the shape changes: every second pixel of x; half of the new channels, zeros,
  /// before and half after. `from` is x's shape, its channels a multiple of 16; `out` has
  /// (width + 1) / 2 pixels per row and twice the channels.
  int (*shortcut)(const ActivationShape& from, Dtype dtype, const void* x, void* out,
                  Stream stream);
  /// The output's gradient for pixels that were taken, otherwise zero.
  int (*shortcut_gradient)(const ActivationShape& from, Dtype dtype, const void* out_gradient,
                           void* x_gradient, Stream stream);

  /// 3x3 maximum, stride 2, padding 1, of max(0, x * scale + shift), which is not stored. `places`
  /// (a byte per output element) is the place of the maximum among the window's nine, row by row,
  /// or 9 if that maximum is not above 0. The first of equal values is taken, and a NaN before
  /// every number. `out` has (width + 1) / 2 pixels per row.
  int (*max_pool)(const ActivationShape& from, Dtype dtype, const void* x, const float* scale,
                  const float* shift, void* out, std::uint8_t* places, Stream stream);
  /// Gradient of x * scale + shift: each pixel adds up the windows that selected it, row
  /// by row.
  int (*max_pool_gradient)(const ActivationShape& from, Dtype dtype, const void* out_gradient,
                           const std::uint8_t* places, void* x_gradient, Stream stream);

  // Classifier. `memory` is kept from forward to backward; weights are classes x features.

  /// Features (means over the pixels) and logits.
  int (*classifier_forward)(const ClassifierShape& shape, Dtype dtype, const void* x,
                            const float* weight, const float* bias, const ClassifierMemory& memory,
                            Stream stream);

  /// Cross entropy with smoothed labels over the logits, top-1 hits (the first of equal logits
  /// counts), and, for classifier_backward(), the gradient of the mean over shape.images. Labels
  /// are below the number of classes.
  int (*classifier_loss)(const ClassifierShape& shape, const std::uint16_t* labels,
                         const LossInput* input, const ClassifierMemory& memory, LossOutput* output,
                         Stream stream);

  /// Gradients of the classifier's parameters, and, times the input's scale, of x.
  int (*classifier_backward)(const ClassifierShape& shape, Dtype dtype, const float* weight,
                             const LossInput* input, const ClassifierMemory& memory,
                             float* weight_gradient, float* bias_gradient, void* x_gradient,
                             Stream stream);

  // Parameters

  /// Packs weights: `from` is the flat array of parameters, `to` where all are packed.
  int (*pack_filters)(const FilterRange& range, Dtype dtype, const float* from, void* to,
                      Stream stream);
  /// Writes packed gradients, without the scale, to their places in the flat array of gradients.
  int (*unpack_filter_gradients)(const FilterRange& range, Dtype dtype, const LossInput* input,
                                 const void* from, float* to, Stream stream);

  /// nn::sgd_update over `count` elements in place, with the same bits.
  int (*sgd_update)(const SgdOptions& options, float learning_rate, const float* gradient,
                    float* parameters, float* momentum, std::uint64_t count, Stream stream);
};

/// The kernels of the GPU: library mayfly_nn_cuda_kernels, if there is a CUDA compiler.
[[nodiscard]] const Kernels& device_kernels();

/// The same on the CPU: library mayfly_nn_cuda_kernels_host. Both may be in one program.
[[nodiscard]] const Kernels& host_kernels();

}  // namespace mayfly::nn::cuda
