#pragma once

// Private to nn/cpu: the option-A shortcut of He et al. 2016, section 4.2, where the shape changes:
// it takes every second pixel and pads the new channels with zeros, half before and half after.

#include "nn/cpu/kernels.hpp"

namespace mayfly::nn::cpu {

class DownsamplingShortcut {
 public:
  /// `from` has `from_width` pixels per row and half the channels of the output.
  DownsamplingShortcut(const BlockedShape& from, std::size_t from_width, Dtype dtype);

  /// Writes all of `out`.
  void forward(const void* x, void* out) const;
  /// Writes all of `x_gradient`: the output's gradient where a pixel was taken, else zero.
  void backward(const void* out_gradient, void* x_gradient) const;

 private:
  /// Calls visit(offset in x, offset in out, bytes) for each run of neighbouring channels; all in
  /// bytes.
  template <typename Visit>
  void for_each_run(const Visit& visit) const;

  BlockedShape from_;
  BlockedShape to_;
  std::size_t from_width_;
  std::size_t element_bytes_;
};

}  // namespace mayfly::nn::cpu
