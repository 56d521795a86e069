#pragma once

// Private to nn/cpu: the 3x3 max pooling with stride 2 and padding 1 behind the stem of the
// ImageNet networks, on blocked activations (nn/cpu/kernels.hpp). Stateless apart from the shape:
// the caller owns all memory, so one thread may use one object with many buffers.
//
// Forward records for each output element which of the window's nine places had the maximum.
// Backward gathers: each input pixel adds up the windows that selected it, at most four, in one
// fixed order. So nothing is cleared and nothing scattered, and the bits depend on no instruction
// set.

#include <cstddef>
#include <cstdint>

#include "nn/cpu/isa.hpp"
#include "nn/cpu/kernels.hpp"

namespace mayfly::nn::cpu {

class MaxPool {
 public:
  /// For `images` images of `channels` x `width` x `width`, in blocks of `block` (8 or 16) channels
  /// that divide `channels`; computed with the instructions of `isa`. bf16 needs AVX-512.
  MaxPool(Isa isa, std::size_t images, std::size_t channels, std::size_t width, std::size_t block,
          Dtype dtype = Dtype::kFp32);

  [[nodiscard]] std::size_t from_width() const { return from_width_; }
  [[nodiscard]] std::size_t to_width() const { return (from_width_ + 1) / 2; }
  [[nodiscard]] BlockedShape from() const { return shape(from_width_); }
  [[nodiscard]] BlockedShape to() const { return shape(to_width()); }
  /// Size of `places`, one byte per output element.
  [[nodiscard]] std::size_t place_count() const { return to().elements(); }

  /// out = maximum of the window of max(0, affine(x)), places = its place (0 to 8, row by row):
  /// norm, ReLU and pooling in one pass over the convolution's output. As in PyTorch the first of
  /// equal values is taken, and a NaN before every number. If no value of a window is above 0, the
  /// place is "nowhere", so that backward returns the gradient before the ReLU.
  void forward(const void* x, const Affine& affine, void* out, std::uint8_t* places) const;

  /// Overwrites the whole gradient of affine(x).
  void backward(const void* out_gradient, const std::uint8_t* places, void* x_gradient) const;

 private:
  [[nodiscard]] BlockedShape shape(std::size_t width) const {
    return {.images = images_, .channels = channels_, .pixels = width * width, .block = block_};
  }

  Isa isa_;
  std::size_t images_;
  std::size_t channels_;
  std::size_t from_width_;
  std::size_t block_;
  Dtype dtype_;
};

}  // namespace mayfly::nn::cpu
