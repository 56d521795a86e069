#pragma once

// Mayfly's own element-wise kernels, once per instruction set, and the descriptions of the tensors
// that they share with convolutions. Activations are in oneDNN's blocked layout nChw16c or nChw8c:
// [image][channel block][pixel][channel in block]. Per-channel arrays are plain and not padded: the
// channel count is a multiple of the block. Pointers to activations are untyped: they point at
// values of the dtype of the table.
//
// Every sum has a fixed order that depends only on the shape: chunks of 64 pixels in fp32, chunks
// in double over pixels and then images.

#include <cstddef>

#include "nn/cpu/isa.hpp"
#include "nn/dtype.hpp"

namespace mayfly::nn::cpu {

struct BlockedShape {
  std::size_t images = 0;
  std::size_t channels = 0;
  std::size_t pixels = 0;  ///< of one channel of one image
  std::size_t block = 0;   ///< channels per block, 16 or 8

  [[nodiscard]] std::size_t elements() const { return images * channels * pixels; }
};

/// Per-channel sums in double.
struct ChannelSums {
  double* first;
  double* second;
};

/// Per-channel factors of y = x * scale + shift.
struct Affine {
  const float* scale;
  const float* shift;
};

/// Per-channel factors of dx = gradient_factor * g + (centred_factor * (x - mean) + constant).
struct NormGradient {
  const float* gradient_factor;
  const float* centred_factor;
  const float* constant;
  const float* mean;
};

// The tensors of a convolution, with the parts of norm, ReLU and shortcut that it computes while it
// reads and writes them, so that these need no passes of their own.

/// A convolution's input: x as it is stored, or max(0, affine(x)).
struct ActivationRead {
  const void* x = nullptr;
  bool through_norm = false;  ///< read norm and ReLU of x
  Affine affine{};            ///< with through_norm
};

/// A convolution's output, and the sums over it that batch norm needs.
struct ActivationWrite {
  void* out = nullptr;
  bool wants_moments = false;
  ChannelSums moments{};  ///< with wants_moments: sums of out and of its squares, overwritten
};

/// The gradient of a convolution's output: as it is stored, or through the batch norm behind the
/// convolution: the gradient of the norm's output is stored, and x is the norm's input.
struct GradientRead {
  const void* gradient = nullptr;
  bool through_norm = false;
  const void* x = nullptr;  ///< with through_norm
  NormGradient factors{};   ///< with through_norm
};

/// How to find out where the ReLU in front of a convolution's input was active.
enum class ReluMask {
  kNone,      ///< there is none: nothing is masked, no sums are taken
  kAffine,    ///< where affine(x) > 0
  kPositive,  ///< where the ReLU's output was > 0
};

/// The gradient of a convolution's input, with the operations on it: the shortcut's part is added,
/// the ReLU that made the input masks it, and the sums for the norm before that ReLU are computed.
struct GradientWrite {
  void* out = nullptr;
  const void* addend = nullptr;  ///< null: none
  ReluMask mask = ReluMask::kNone;
  Affine affine{};                    ///< with kAffine
  const void* relu_output = nullptr;  ///< with kPositive
  const void* x = nullptr;            ///< input of the norm before the ReLU, unless kNone
  const float* mean = nullptr;        ///< of that norm
  ChannelSums sums{};                 ///< sum of out, sum of out * (x - mean); overwritten
};

struct Kernels {
  std::size_t block;  ///< channels per block that these kernels work on

  /// Converts `count` fp32 values to the dtype; `out` is aligned, `values` need not be.
  void (*store_images)(const float* values, std::size_t count, void* out);

  /// first = sum of x, second = sum of x squared (each chunk is centred first, so that a large mean
  /// does not cost digits of the variance).
  void (*moments)(const BlockedShape&, const void* x, const ChannelSums& sums);

  /// out = max(0, affine(x))
  void (*normalise_relu)(const BlockedShape&, const void* x, const Affine&, void* out);

  /// out = max(0, affine(x) + residual)
  void (*normalise_add_relu)(const BlockedShape&, const void* x, const Affine&,
                             const void* residual, void* out);

  /// out = max(0, affine(x) + residual_affine(residual))
  void (*normalise_both_add_relu)(const BlockedShape&, const void* x, const Affine&,
                                  const void* residual, const Affine& residual_affine, void* out);

  /// Applies a GradientWrite to a gradient that is already in `out`: adds, masks and sums in place.
  void (*finish_gradient)(const BlockedShape&, const GradientWrite&);

  /// first = sum of gradient, second = sum of gradient * (x - mean).
  void (*gradient_sums)(const BlockedShape&, const void* gradient, const void* x, const float* mean,
                        const ChannelSums& sums);

  /// dx = the input gradient of the norm. dx may be `gradient`.
  void (*input_gradient)(const BlockedShape&, const void* gradient, const void* x,
                         const NormGradient&, void* dx);
};

/// bf16 exists for AVX-512 only.
[[nodiscard]] const Kernels& kernels_for(Isa isa, Dtype dtype);

}  // namespace mayfly::nn::cpu
